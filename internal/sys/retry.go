package sys

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Retry makes a call until no signal interrupts it.
func Retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// raw makes a raw call whose second argument is memory, until no signal interrupts it. The call must not block.
func raw(number uintptr, fd int, memory unsafe.Pointer, more [3]uintptr) (int, syscall.Errno) {
	for {
		n, _, e := unix.RawSyscall6(number, uintptr(fd), uintptr(memory), more[0], more[1], more[2], 0)
		if e != unix.EINTR {
			return int(n), e
		}
	}
}
