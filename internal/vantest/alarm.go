package vantest

import (
	"sync"

	"golang.org/x/sys/unix"
)

// alarm ends a sleep on descriptors. The zero value has no descriptor yet, and rings nobody. Any goroutine.
type alarm struct {
	mu   sync.Mutex
	fd   int // an eventfd, or 0 while the alarm has no descriptor
	rung bool
}

// listen adds the alarm's descriptor, which is readable when it has been rung since the last answer.
func (a *alarm) listen(fds []unix.PollFd) []unix.PollFd {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd == 0 {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return fds // the sleep has a limit
		}
		if a.fd = fd; a.rung {
			a.write()
		}
	}
	return append(fds, unix.PollFd{Fd: int32(a.fd), Events: unix.POLLIN})
}

func (a *alarm) ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rung = true
	if a.fd > 0 {
		a.write()
	}
}

func (a *alarm) write() { _, _ = unix.Write(a.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (a *alarm) answer() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rung && a.fd > 0 {
		_, _ = unix.Read(a.fd, make([]byte, 8))
		a.rung = false
	}
}

func (a *alarm) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd > 0 {
		_ = unix.Close(a.fd)
	}
	a.fd = -1
}
