package progress

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// sleepingWaiter is a mailbox with a waiter that sleeps in the kernel with the token.
func sleepingWaiter(t *testing.T, quiet bool, wait func(e *Engine, ev *Event) error) (m *mailbox, ev *Event, done chan error) {
	before := runtime.GOMAXPROCS(4) // sleeping waiters keep a processor, of which some must be left
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	m = newMailbox(t, quiet, Options{Mode: Park})
	ev, done = &Event{}, make(chan error, 1)
	go func() { done <- wait(m.engine, ev) }()
	asleep(t, m.engine, ev)
	return m, ev, done
}

// asleep returns when a waiter sleeps for ev.
func asleep(t *testing.T, e *Engine, ev *Event) {
	t.Helper()
	for end := time.Now().Add(bound); ev.state.Load()&(eventSleeping|eventParked) == 0; runtime.Gosched() {
		require.True(t, time.Now().Before(end), "nobody fell asleep")
	}
}

// A waiter sleeps with the token as long as most waits of its kind take, within bounds.
func TestMostAsleepFollowsTheHistory(t *testing.T) {
	for _, mode := range []Mode{Auto, Park} {
		m := newMailbox(t, true, Options{Mode: mode})
		w := wait{engine: m.engine, ev: &Event{Kind: Answer}}
		require.Equal(t, sleepLimit, w.mostAsleep(), "nothing is known")
		h := m.engine.history(Answer)
		for range historyLength {
			h.note(10_000 * us)
		}
		require.Equal(t, 20_000*us, w.mostAsleep())
		for range historyLength / mostShare {
			h.note(1_000_000 * us)
		}
		require.Equal(t, 20_000*us, w.mostAsleep(), "most waits end soon")
		h.note(1_000_000 * us)
		require.Equal(t, sleepLimit, w.mostAsleep(), "the waits are too long to keep a processor")
		for range historyLength {
			h.note(100 * us)
		}
		require.Equal(t, sleepLimit, w.mostAsleep())
		w.ev = &Event{}
		require.Equal(t, sleepLimit, w.mostAsleep(), "nothing is learned of rare waits")
	}
}

func forEver(e *Engine, ev *Event) error { return e.WaitFor(-1, ev) }

func TestArrivalEndsASleep(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		m, ev, done := sleepingWaiter(t, quiet, forEver)
		m.arrive(ev)
		require.NoError(t, <-done)
	}
}

// Set wakes a sleepingWaiter also when the goroutine that calls it does not drive.
func TestSetEndsASleep(t *testing.T) {
	m, ev, done := sleepingWaiter(t, true, forEver)
	m.engine.Set(ev)
	require.NoError(t, <-done)
}

func TestLimitsEndASleep(t *testing.T) {
	_, _, done := sleepingWaiter(t, true, func(e *Engine, ev *Event) error { return e.WaitFor(20*time.Millisecond, ev) })
	require.ErrorIs(t, <-done, context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(context.Background())
	_, _, done = sleepingWaiter(t, true, func(e *Engine, ev *Event) error { return e.Wait(ctx, ev) })
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestCloseEndsASleep(t *testing.T) {
	m, _, done := sleepingWaiter(t, false, forEver)
	m.engine.Close()
	require.ErrorIs(t, <-done, stepvan.ErrClosed)
}

// After WakeAll the source is polled, although the waiter that drives sleeps.
func TestWakeAllPolls(t *testing.T) {
	m, ev, done := sleepingWaiter(t, true, forEver)
	m.mu.Lock()
	m.list = append(m.list, ev) // without a sign
	m.mu.Unlock()
	m.engine.WakeAll()
	require.NoError(t, <-done)
}

// A waiter that finds another one asleep with the token parks. The other one sets its event, or hands the token over.
func TestSeveralSleepAtOnce(t *testing.T) {
	m, ev, done := sleepingWaiter(t, false, forEver)
	var others [8]Event
	var wg sync.WaitGroup
	for i := range others {
		wg.Go(func() {
			if err := m.engine.WaitFor(bound, &others[i]); err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
		})
	}
	for i := range others {
		asleep(t, m.engine, &others[i])
		m.arrive(&others[i])
		if i == 3 {
			m.arrive(ev)
			require.NoError(t, <-done)
		}
	}
	wg.Wait()
}

// While a waiter drives, what comes over a loud descriptor does not wake the background driver.
func TestBackgroundDriverIsNotWokenForWhatAWaiterHandles(t *testing.T) {
	before := runtime.GOMAXPROCS(4)
	defer runtime.GOMAXPROCS(before)
	m := newMailbox(t, false, Options{Mode: Spin})
	own(t, m.engine)
	m.engine.release()
	var last Event
	done := make(chan error, 1)
	go func() { done <- m.engine.WaitFor(bound, &last) }()
	for end := time.Now().Add(bound); m.polls.Load() < 1000; runtime.Gosched() {
		require.True(t, time.Now().Before(end), "nobody spins")
	}
	woken := 0
	for range 1000 {
		var ev Event
		m.arrive(&ev)
		for !ev.IsSet() {
			runtime.Gosched()
		}
		if m.engine.token.has(asked) {
			m.engine.token.clear(asked)
			woken++
		}
	}
	require.LessOrEqual(t, woken, 2, "once for what came before, and once for that")
	m.arrive(&last)
	require.NoError(t, <-done)
}

// In a tight loop of waits nobody arms the source, and a tick does so afterwards.
func TestTightLoopsDoNotArm(t *testing.T) {
	m := newMailbox(t, true, Options{})
	own(t, m.engine)
	m.engine.absence.rate = maxRate
	m.engine.listener.stop()
	m.engine.src.Poll(true) // no longer armed
	m.engine.endDriving(false)
	require.True(t, m.engine.ticker.pending.Load())
	var ev Event
	m.arrive(&ev) // wakes nobody
	for end := time.Now().Add(bound); m.engine.ticker.pending.Load() || !ev.IsSet(); runtime.Gosched() {
		require.True(t, time.Now().Before(end), "the tick never ends, or arms nothing")
	}
}

// own takes the token after the background driver has had its first turn.
func own(t *testing.T, e *Engine) {
	t.Helper()
	for end := time.Now().Add(bound); ; runtime.Gosched() {
		require.True(t, time.Now().Before(end), "the background driver keeps the token")
		if !e.token.take() {
			continue
		}
		if e.listener.on.Load() {
			return
		}
		e.release()
	}
}

// oversubscribed makes the engine believe that goroutines of this process wait for a processor.
func oversubscribed(t *testing.T) {
	cpus.sampledAt.Store(nanotime() + int64(time.Hour)) // nobody looks meanwhile
	cpus.oversubscribed.Store(true)
	t.Cleanup(func() {
		cpus.oversubscribed.Store(false)
		cpus.sampledAt.Store(0)
	})
}

// In an oversubscribed process a wait leaves driving to a background driver that listens. The wait polls nothing, and
// the background driver finds what comes.
func TestOversubscribedWaitsLeaveTheBackgroundDriverListening(t *testing.T) {
	oversubscribed(t)
	for _, quiet := range []bool{false, true} {
		m := newMailbox(t, quiet, Options{})
		own(t, m.engine)
		m.engine.release()
		for range 3 {
			var ev Event
			done := make(chan error, 1)
			polls := m.polls.Load()
			go func() { done <- m.engine.WaitFor(-1, &ev) }()
			asleep(t, m.engine, &ev)
			require.True(t, m.engine.listener.on.Load())
			require.Equal(t, polls, m.polls.Load())
			m.arrive(&ev)
			require.NoError(t, <-done)
			own(t, m.engine) // the background driver has armed the source
			m.engine.release()
		}
		var ev Event
		require.ErrorIs(t, m.engine.WaitFor(time.Millisecond, &ev), context.DeadlineExceeded)
	}
}

// A tick leaves a background driver that listens alone, and takes its time while the process is oversubscribed.
func TestTicksWhileTheBackgroundDriverListens(t *testing.T) {
	m := newMailbox(t, true, Options{})
	own(t, m.engine)
	m.engine.release()
	require.Equal(t, tickTime, m.engine.tickAfter())
	oversubscribed(t)
	require.Equal(t, longestTick, m.engine.tickAfter())
	polls := m.polls.Load()
	m.engine.ticker.turns.Store(m.engine.token.turns())
	m.engine.tick()
	require.Equal(t, polls, m.polls.Load())
	require.True(t, m.engine.listener.on.Load())
	require.False(t, m.engine.ticker.pending.Load())
	own(t, m.engine)
	m.engine.listener.stop()
	require.Equal(t, tickTime, m.engine.tickAfter())
	m.engine.endDriving(true)
}

// settling is a Source that has something left when it is armed for the first time.
type settling struct {
	inbox
	arms, pollsAfter, flushesAfter int
}

func (s *settling) Arm() bool { s.arms++; return s.arms > 1 }
func (s *settling) Poll(bool) int {
	s.pollsAfter, s.flushesAfter = s.pollsAfter+1, 0
	return 0
}
func (s *settling) Flush(bool) { s.flushesAfter++ }

// A waiter that gives up flushes what its last poll has brought: no tick may follow.
func TestTheLastPollIsFlushed(t *testing.T) {
	_, e := newInbox(t, Options{})
	own(t, e)
	before := e.src
	s := &settling{}
	e.src = s
	e.listener.on.Store(false)
	e.armAndListen()
	require.Equal(t, 2, s.arms)
	require.Positive(t, s.flushesAfter)
	e.src = before
	e.release()
}

// The ticks of a program that waits again and again become rarer, down to one in longestTick.
func TestTicksOfABusyProgramAreRare(t *testing.T) {
	_, e := newInbox(t, Options{})
	own(t, e)
	e.listener.stop()
	for i := range 10 {
		require.Equal(t, tickTime<<min(i, mostBusy), e.tickAfter())
		e.token.word.Add(oneTurn) // somebody has driven
		e.tick()
	}
	require.Equal(t, longestTick, e.tickAfter())
	e.tick()
	require.Equal(t, tickTime, e.tickAfter(), "nobody has driven for the length of a tick")
	e.release()
}
