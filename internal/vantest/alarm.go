package vantest

import (
	"sync"

	"golang.org/x/sys/unix"
)

// alarm ends a sleep on descriptors. The goroutine of the case opens, answers and closes it, any goroutine may ring.
type alarm struct {
	mu sync.Mutex
	fd int // an eventfd, or -1
}

// open makes the descriptor. Without one a sleep lasts until its limit.
func (a *alarm) open() {
	var err error
	if a.fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		a.fd = -1
	}
}

// ring makes the descriptor readable.
func (a *alarm) ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd >= 0 {
		_, _ = unix.Write(a.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// answer ends the ringing.
func (a *alarm) answer() {
	if a.fd >= 0 {
		_, _ = unix.Read(a.fd, make([]byte, 8))
	}
}

func (a *alarm) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd >= 0 {
		_ = unix.Close(a.fd)
		a.fd = -1
	}
}
