package affinity

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
)

// self names the calling thread to the kernel.
const self = 0

// Allowed returns the cores that the calling thread may use.
func Allowed() (Set, error) { return maskOf(self) }

func maskOf(tid int) (Set, error) {
	s := Set{words: make([]uint64, MaxCores/64)}
	n, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETAFFINITY, uintptr(tid), uintptr(len(s.words)*8), uintptr(unsafe.Pointer(&s.words[0])))
	if errno != 0 {
		return Set{}, fmt.Errorf("sched_getaffinity: %w", errno)
	}
	s.words = s.words[:n/8]
	return s, nil
}

// Pin binds the calling thread to the cores. The thread must be allowed to use at least one of
// them. The caller has locked its goroutine to the thread, and does not unlock it: the thread ends
// with the goroutine.
func Pin(s Set) error { return bind(self, s) }

func bind(tid int, s Set) error {
	if s.Len() == 0 {
		return errs.Invalid("no core to bind to")
	}
	_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETAFFINITY, uintptr(tid), uintptr(len(s.words)*8), uintptr(unsafe.Pointer(&s.words[0])))
	switch errno {
	case 0:
		return nil
	case unix.EINVAL:
		return errs.Invalid("none of the cores %v exists here and is allowed (cpuset of the control group)", s)
	}
	return fmt.Errorf("sched_setaffinity to cores %v: %w", s, errno)
}

// Yield offers the core of the calling thread to other threads. The Go runtime does not learn of it.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) } // cannot fail

func gone(err error) bool { return errors.Is(err, unix.ESRCH) }
