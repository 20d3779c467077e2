package progress

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// bell is an eventfd that wakes one sleeper. ring may be called from any goroutine, the rest by the sleeper.
type bell struct {
	mu   sync.Mutex  // guards fd against close: a number that is free again names something else
	fd   int         // -1 when closed
	rung atomic.Bool // fd has been written and not read
	in   [8]byte
	out  [8]byte
}

func newBell() (*bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("progress: eventfd: %w", err)
	}
	return &bell{fd: fd, out: [8]byte{1}}, nil
}

// ring wakes the sleeper, or keeps it from falling asleep.
func (b *bell) ring() {
	if b.rung.Swap(true) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fd >= 0 {
		_, _ = unix.Write(b.fd, b.out[:])
	}
}

// answer reports whether the bell has been rung since the last time. Whoever rings
// later is served by what the sleeper looks at from here on.
func (b *bell) answer() bool {
	if !b.rung.Load() {
		return false
	}
	// Who rings may not have written yet. Then the bell counts as rung until it is written and read: else it would
	// stay readable, and nobody would ever read it.
	if n, _ := unix.Read(b.fd, b.in[:]); n > 0 {
		b.rung.Store(false)
	}
	return true
}

func (b *bell) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fd >= 0 {
		_ = unix.Close(b.fd)
	}
	b.fd = -1
}
