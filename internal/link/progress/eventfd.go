package progress

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// eventfd wakes one sleeper through a descriptor. Any goroutine may call wake; only the sleeper calls the rest.
type eventfd struct {
	mu    sync.Mutex  // guards fd against close: a closed number may soon name something else
	fd    int         // -1 when closed
	woken atomic.Bool // fd has been written and not read
	in    [8]byte
	out   [8]byte
}

func newEventfd() (*eventfd, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("progress: eventfd: %w", err)
	}
	return &eventfd{fd: fd, out: [8]byte{1}}, nil
}

// wake wakes the sleeper, or keeps it from falling asleep.
func (f *eventfd) wake() {
	if f.woken.Swap(true) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fd >= 0 {
		_, _ = unix.Write(f.fd, f.out[:])
	}
}

// takeWake reports whether wake was called since the last takeWake. What the sleeper looks at from here on serves later
// calls of wake.
func (f *eventfd) takeWake() bool {
	if !f.woken.Load() {
		return false
	}
	// The caller of wake may not have written yet. The wake-up then stays until it is written and read. Otherwise the
	// descriptor would stay readable, and nobody would ever read it.
	if n, _ := unix.Read(f.fd, f.in[:]); n > 0 {
		f.woken.Store(false)
	}
	return true
}

func (f *eventfd) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fd >= 0 {
		_ = unix.Close(f.fd)
	}
	f.fd = -1
}
