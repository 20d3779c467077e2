package sys

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mapped reports whether this process has mapped all of b, which is not empty. It does not touch the memory.
func Mapped(b []byte) bool {
	page := uintptr(unix.Getpagesize())
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	first, end := start&^(page-1), start+uintptr(len(b))
	resident := make([]byte, (end-first+page-1)/page)
	_, _, e := unix.Syscall(unix.SYS_MINCORE, first, end-first, uintptr(unsafe.Pointer(&resident[0])))
	return e != unix.ENOMEM
}

// ReadProcess reads memory of another process, at an address of its own (process_vm_readv). It may read less than b
// has room for.
func ReadProcess(pid int, b []byte, at uint64) (n int, err error) {
	local, remote := []unix.Iovec{Iovec(b)}, []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}
	err = Retry(func() error {
		n, err = unix.ProcessVMReadv(pid, local, remote, 0)
		return err
	})
	return n, err
}
