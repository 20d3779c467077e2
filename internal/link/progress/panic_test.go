package progress

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// mine is a Source that panics in Poll once it is armed with a reason.
type mine struct {
	inbox
	reason chan string
}

func (m *mine) Poll(all bool) int {
	select {
	case r := <-m.reason:
		panic(r)
	default:
		return m.inbox.Poll(all)
	}
}

func (m *mine) Arm() bool { return len(m.reason) == 0 && m.inbox.Arm() }

var errBroken = errors.New("broken")

// newMine makes an engine whose Panicked returns contain. For each panic, reports gets whether the goroutine that
// panicked held the token.
func newMine(t *testing.T, contain bool) (m *mine, e *Engine, reports chan bool) {
	m = &mine{inbox: inbox{ready: make(chan *Event, 16)}, reason: make(chan string, 16)}
	reports = make(chan bool, 16)
	e, err := NewEngine(m, Options{Panicked: func(value any, driving bool) (bool, error) {
		reports <- driving
		return contain, errBroken
	}})
	require.NoError(t, err)
	m.engine.Store(e)
	t.Cleanup(e.Close)
	return m, e, reports
}

// eventually yields to other goroutines until is returns true. The text what says what it waits for.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !is(); runtime.Gosched() {
		require.True(t, time.Now().Before(end), what)
	}
}

// waits starts n goroutines that each wait for an event that does not happen.
func waits(e *Engine, n int) (results chan error) {
	results = make(chan error, n)
	for range n {
		go func() {
			var ev Event
			results <- e.WaitFor(bound, &ev)
		}()
	}
	return results
}

// The source panics, and the background driver or a waiter drives at that moment. All waits end with the error, later
// ones too, and Close returns.
func TestAPanicEndsAllWaits(t *testing.T) {
	for _, c := range []struct {
		name    string
		waiters int
	}{{"background driver", 0}, {"one waiter", 1}, {"some wait", 8}} {
		t.Run(c.name, func(t *testing.T) {
			m, e, reports := newMine(t, true)
			results := waits(e, c.waiters)
			eventually(t, "a waiter drives or is parked", func() bool { return c.waiters == 0 || e.token.has(held|parked) })
			m.reason <- "on purpose"
			e.Wake()
			for range c.waiters {
				require.ErrorIs(t, <-results, errBroken)
			}
			require.True(t, <-reports, "who panicked held the token")
			var ev Event
			require.ErrorIs(t, e.WaitFor(bound, &ev), errBroken)
			ctx, cancel := context.WithTimeout(context.Background(), bound)
			defer cancel()
			require.ErrorIs(t, e.Wait(ctx, &ev), errBroken)
			e.Close()
			e.Close()
			require.ErrorIs(t, e.WaitFor(0, &ev), errBroken, "the cause outlives Close")
		})
	}
}

// Where panics continue, the panic of a waiter reaches its goroutine. If the program recovers it there, nothing hangs.
func TestAPanicThatGoesOnLeavesNobodyWaiting(t *testing.T) {
	m, e, _ := newMine(t, false)
	e.policy.mode = Spin // the waiter drives, and not the background driver, whose panic would end the process
	eventually(t, "the background driver sits", e.listener.on.Load)
	var ev Event
	result := make(chan any)
	go func() {
		defer func() { result <- recover() }()
		_ = e.WaitFor(bound, &ev)
	}()
	eventually(t, "the waiter drives", func() bool { return !e.listener.on.Load() })
	m.reason <- "on purpose"
	require.Equal(t, "on purpose", <-result)
	require.ErrorIs(t, e.WaitFor(bound, &ev), errBroken)
	e.Close()
}

// Fail, called by another goroutine, ends the waits that drive, sleep or are parked.
func TestFailEndsWaits(t *testing.T) {
	for _, mode := range []Mode{Auto, Spin, Park} {
		_, e := newInbox(t, Options{Mode: mode})
		results := waits(e, 4)
		eventually(t, "a waiter drives or is parked", func() bool { return e.token.has(held | parked) })
		e.Fail(errBroken)
		e.Fail(errors.New("later"))
		for range 4 {
			require.ErrorIs(t, <-results, errBroken)
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(e.Close)
		}
		all.Wait()
	}
	_, e := newInbox(t, Options{})
	e.Close()
	var ev Event
	require.ErrorIs(t, e.WaitFor(bound, &ev), stepvan.ErrClosed)
}
