package progress

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// mailbox is a Source with a descriptor. Others put events in, and the goroutine that polls sets them. A loud mailbox
// writes its descriptor for each thing that comes, as sockets do. A quiet one does so only while it is armed.
type mailbox struct {
	engine *Engine
	quiet  bool
	fd     int
	in     [8]byte

	mu      sync.Mutex
	list    []*Event
	armed   bool
	written bool

	polling    atomic.Int32
	polls      atomic.Int64
	concurrent atomic.Bool // two polled at once
}

func newMailbox(t testing.TB, quiet bool, o Options) *mailbox {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	require.NoError(t, err)
	m := &mailbox{quiet: quiet, fd: fd}
	m.engine, err = NewEngine(m, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		m.engine.Close()
		require.False(t, m.concurrent.Load(), "two goroutines polled at once")
		_ = unix.Close(fd)
	})
	return m
}

// arrive puts ev in.
func (m *mailbox) arrive(ev *Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, ev)
	if !m.quiet || m.armed {
		m.armed, m.written = false, true
		_, _ = unix.Write(m.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// take removes everything, or, as a socket that was active lately does, all but the last thing.
func (m *mailbox) take(all bool) []*Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.armed = false
	list := m.list
	if !all && len(list) > 1 {
		m.list = list[len(list)-1:]
		return list[:len(list)-1]
	}
	m.list = nil
	if m.written {
		m.written = false
		_, _ = unix.Read(m.fd, m.in[:])
	}
	return list
}

func (m *mailbox) Poll(all bool) int {
	if m.polling.Add(1) > 1 {
		m.concurrent.Store(true)
	}
	defer m.polling.Add(-1)
	m.polls.Add(1)
	list := m.take(all)
	for _, ev := range list {
		m.engine.Set(ev)
	}
	return len(list)
}

func (m *mailbox) Arm() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.armed = !m.quiet || len(m.list) == 0
	return m.armed
}

func (m *mailbox) Flush(bool)        {}
func (m *mailbox) FDs() []Descriptor { return []Descriptor{{FD: m.fd, Quiet: m.quiet}} }

// forMailboxes runs fn for both kinds of source and all modes.
func forMailboxes(t *testing.T, fn func(t *testing.T, m *mailbox)) {
	for _, quiet := range []bool{false, true} {
		for mode, name := range map[Mode]string{Auto: "auto", Spin: "spin", Park: "park"} {
			t.Run(fmt.Sprintf("%s quiet=%t", name, quiet), func(t *testing.T) {
				fn(t, newMailbox(t, quiet, Options{Mode: mode}))
			})
		}
	}
}

// The engine misses no event, with one waiter and with several. Waits follow each other closely, or with absences
// between. Some events come while nobody waits for them.
func TestNothingIsSleptThrough(t *testing.T) {
	forMailboxes(t, func(t *testing.T, m *mailbox) {
		for _, waiters := range []int{1, 3} {
			var wg sync.WaitGroup
			for w := range waiters {
				wg.Go(func() { m.correspond(t, 300, rand.New(rand.NewPCG(uint64(w), 1))) })
			}
			wg.Wait()
		}
	})
}

// correspond lets a peer answer after random times. Meanwhile it waits, looks or stays away at random.
func (m *mailbox) correspond(t *testing.T, rounds int, rng *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	asked := make(chan *Event)
	defer close(asked)
	delays := rand.New(rand.NewPCG(rng.Uint64(), 2))
	go func() {
		for ev := range asked {
			idle(delays)
			m.arrive(ev)
		}
	}()
	for range rounds {
		var ev Event
		asked <- &ev
		var err error
		switch rng.IntN(4) {
		case 0:
			err = m.engine.Wait(ctx, &ev)
		case 1:
			for !ev.IsSet() && ctx.Err() == nil { // only looks, never drives
				runtime.Gosched()
			}
			err = ctx.Err()
		default:
			err = m.engine.WaitFor(bound, &ev)
		}
		if err != nil {
			t.Errorf("slept through: %v", err)
			return
		}
		idle(rng)
	}
}

// idle passes a random time, mostly none.
func idle(rng *rand.Rand) {
	switch rng.IntN(8) {
	case 0:
		time.Sleep(time.Duration(rng.IntN(6000)) * time.Microsecond)
	case 1:
		for end := time.Now().Add(time.Duration(rng.IntN(100)) * time.Microsecond); time.Now().Before(end); {
			runtime.Gosched()
		}
	}
}
