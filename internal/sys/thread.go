package sys

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Preemptions is how often the kernel ran another thread in place of the calling one, which wanted to run on. A
// sched_yield(2) that let another thread run counts as well. Budget: one system call. It is 0 where the kernel does not
// tell.
func Preemptions() int64 {
	var usage unix.Rusage
	if _, _, errno := unix.RawSyscall(unix.SYS_GETRUSAGE, unix.RUSAGE_THREAD, uintptr(unsafe.Pointer(&usage)), 0); errno != 0 {
		return 0
	}
	return usage.Nivcsw
}
