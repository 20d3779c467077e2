package shm

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Unmapped explains EFAULT: it names the first of the segments of which this process has unmapped a page, and says what
// to do. nil when all are mapped. One system call per segment; for failures only.
func Unmapped(segments [][]byte) error {
	for _, s := range segments {
		if len(s) > 0 && !mapped(s) {
			return fmt.Errorf("this process has unmapped the memory of a tensor in use, %d bytes at %p: keep it until the exchange has ended (%w)",
				len(s), unsafe.SliceData(s), unix.EFAULT)
		}
	}
	return nil
}

// mapped asks mincore(2), which does not touch the memory.
func mapped(b []byte) bool {
	page := uintptr(unix.Getpagesize())
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	first, end := start&^(page-1), start+uintptr(len(b))
	resident := make([]byte, (end-first+page-1)/page)
	_, _, e := unix.Syscall(unix.SYS_MINCORE, first, end-first, uintptr(unsafe.Pointer(&resident[0])))
	return e != unix.ENOMEM
}
