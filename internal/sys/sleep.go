package sys

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sleep sleeps until one of fds shows what it is asked for, d has passed, or a signal arrives. With yields the runtime
// may give the processor of the goroutine to others. It then looks for such processors every 20 us for a while, which
// takes time from the goroutines that run. Without yields it does not learn of the sleep. For purposes of its own, such
// as the start of a garbage collection, it ends the sleep with a signal.
func Sleep(fds []unix.PollFd, d time.Duration, yields bool) {
	limit := unix.NsecToTimespec(int64(d))
	if yields {
		_, _ = unix.Ppoll(fds, &limit, nil)
		return
	}
	_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)),
		uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
}
