package sys

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReadProcess reads memory of another process, at an address of its own (process_vm_readv). It may read less than b
// has room for.
func ReadProcess(pid int, b []byte, at uint64) (n int, err error) {
	local := []unix.Iovec{{Base: unsafe.SliceData(b)}}
	local[0].SetLen(len(b))
	remote := []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}
	for {
		if n, err = unix.ProcessVMReadv(pid, local, remote, 0); err != unix.EINTR {
			return n, err
		}
	}
}
