package sys

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// EdgeTriggered makes epoll report changes only. An EpollEvent has unsigned events, unix.EPOLLET is signed.
const EdgeTriggered = uint32(1) << 31

// wakeID is what Wait names the eventfd.
const wakeID = -1

// Epoll is an epoll set with an eventfd that wakes it. Its methods do nothing once it is closed. The caller keeps Close
// apart from the others, which may be called concurrently.
type Epoll struct{ set, event int }

// OpenEpoll makes an empty set.
func OpenEpoll() (e Epoll, err error) {
	e.event = -1
	if e.set, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return e, os.NewSyscallError("epoll_create1", err)
	}
	_ = unix.SetNonblock(e.set, true)
	if e.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		err = os.NewSyscallError("eventfd", err)
	} else {
		err = e.Add(e.event, unix.EPOLLIN|EdgeTriggered, wakeID)
	}
	if err != nil {
		e.Close()
	}
	return e, err
}

// FD is the descriptor of the set, -1 once it is closed. It is readable while the set has something to report.
func (e *Epoll) FD() int { return e.set }

// Add adds a descriptor, which Wait calls id from here on. id is not negative.
func (e *Epoll) Add(fd int, events uint32, id int) error {
	return e.control(unix.EPOLL_CTL_ADD, fd, events, id)
}

// Change changes what Wait reports of a descriptor.
func (e *Epoll) Change(fd int, events uint32, id int) error {
	return e.control(unix.EPOLL_CTL_MOD, fd, events, id)
}

// Remove takes a descriptor out. That must come before it is closed where a child process may have a copy.
func (e *Epoll) Remove(fd int) error { return e.control(unix.EPOLL_CTL_DEL, fd, 0, 0) }

func (e *Epoll) control(how, fd int, events uint32, id int) error {
	err := unix.EpollCtl(e.set, how, fd, &unix.EpollEvent{Events: events, Fd: int32(id)})
	return os.NewSyscallError("epoll_ctl", err)
}

// Wait reads up to len(events) events without blocking. Events of the eventfd have a negative Fd.
func (e *Epoll) Wait(events []unix.EpollEvent) int { return EpollWait(e.set, events) }

// EpollWait reads up to len(events) events of a set without blocking; a raw call. It reads an error as "nothing": it
// can only be a closed set.
func EpollWait(set int, events []unix.EpollEvent) int {
	n, _ := raw(unix.SYS_EPOLL_PWAIT, set, unsafe.Pointer(&events[0]), [3]uintptr{uintptr(len(events))})
	return max(n, 0)
}

// Wake has the set report something. The eventfd is edge-triggered and never read, so each call is an edge.
func (e *Epoll) Wake() {
	one := uint64(1)
	_, _ = raw(unix.SYS_WRITE, e.event, unsafe.Pointer(&one), [3]uintptr{8})
}

// Close closes the descriptors. Closing again has no effect.
func (e *Epoll) Close() {
	for _, fd := range []*int{&e.set, &e.event} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}
