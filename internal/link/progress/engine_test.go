package progress

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

const bound = 20 * time.Second

// inbox is a Source without descriptors. Others put events in, and the goroutine that polls sets them.
type inbox struct {
	engine     atomic.Pointer[Engine]
	ready      chan *Event
	polling    atomic.Int32
	polls      atomic.Int64
	flushes    atomic.Int64
	concurrent atomic.Bool // two polled at once
}

func newInbox(t testing.TB, o Options) (*inbox, *Engine) {
	in := &inbox{ready: make(chan *Event, 1024)}
	e, err := NewEngine(in, o)
	require.NoError(t, err)
	in.engine.Store(e)
	t.Cleanup(e.Close)
	return in, e
}

func (in *inbox) Poll(bool) int {
	if in.polling.Add(1) > 1 {
		in.concurrent.Store(true)
	}
	defer in.polling.Add(-1)
	in.polls.Add(1)
	n := 0
	for {
		select {
		case ev := <-in.ready:
			in.engine.Load().Set(ev)
			n++
		default:
			return n
		}
	}
}

func (in *inbox) Arm() bool         { return len(in.ready) == 0 }
func (in *inbox) Flush(bool)        { in.flushes.Add(1) }
func (in *inbox) FDs() []Descriptor { return nil }

func (in *inbox) arrive(ev *Event) {
	in.ready <- ev
	in.engine.Load().Wake()
}

func TestSixteenGoroutinesWaitForSixteenEventsOnOneCore(t *testing.T) {
	for _, mode := range []Mode{Auto, Park} {
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			in, e := newInbox(t, Options{Mode: mode})
			ctx, cancel := context.WithTimeout(context.Background(), bound)
			defer cancel()
			for range 50 {
				var events [16]Event
				var wg sync.WaitGroup
				for i := range events {
					wg.Go(func() {
						if err := e.Wait(ctx, &events[i]); err != nil {
							t.Errorf("waiter %d: %v", i, err)
						}
					})
				}
				for i := range events {
					in.arrive(&events[(i*7)%16])
				}
				wg.Wait()
			}
			require.False(t, in.concurrent.Load(), "two goroutines polled at once")
		}()
	}
}

func TestManyWaitersOfOneEventAllWake(t *testing.T) {
	in, e := newInbox(t, Options{})
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	var ev Event
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if err := e.Wait(ctx, &ev); err != nil {
				t.Error(err)
			}
		})
	}
	in.arrive(&ev)
	wg.Wait()
	require.NoError(t, e.Wait(ctx, &ev), "waiting again on what has happened")
}

func TestProgressGoesOnWhileNobodyWaits(t *testing.T) {
	in, e := newInbox(t, Options{})
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	for range 200 {
		var ev, warm Event
		in.arrive(&warm)
		require.NoError(t, e.Wait(ctx, &warm)) // benches the background driver, now and then
		in.arrive(&ev)
		for !ev.IsSet() { // only looks, never drives
			require.NoError(t, ctx.Err(), "nobody drove")
			runtime.Gosched()
		}
	}
}

func TestTimedOutWaitCanBeRepeated(t *testing.T) {
	in, e := newInbox(t, Options{})
	var ev Event
	err := e.WaitFor(time.Millisecond, &ev)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.EqualError(t, err, "stepvan: wait: gave up after 1ms; the operation continues and can be waited for again")
	err = e.WaitFor(0, &ev)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.EqualError(t, err, "stepvan: wait: it is not over yet, the operation continues and can be waited for")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, e.Wait(ctx, &ev), context.Canceled)
	in.arrive(&ev)
	require.NoError(t, e.WaitFor(bound, &ev))
}

func TestCancelEndsASpinningAndAParkedWait(t *testing.T) {
	for _, mode := range []Mode{Spin, Auto, Park} {
		_, e := newInbox(t, Options{Mode: mode})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		var ev Event
		go func() { done <- e.Wait(ctx, &ev) }()
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	}
}

func TestCloseEndsEveryWait(t *testing.T) {
	for _, mode := range []Mode{Spin, Auto, Park} {
		in := &inbox{ready: make(chan *Event, 1)}
		e, err := NewEngine(in, Options{Mode: mode})
		require.NoError(t, err)
		in.engine.Store(e)
		done := make(chan error, 8)
		var ev Event
		for range cap(done) {
			go func() { done <- e.WaitFor(-1, &ev) }()
		}
		e.Close()
		e.Close()
		for range cap(done) {
			require.ErrorIs(t, <-done, stepvan.ErrClosed)
		}
	}
}

func TestDeadlineInFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &inbox{ready: make(chan *Event, 1)}
		e, err := NewEngine(in, Options{})
		require.NoError(t, err)
		in.engine.Store(e)
		defer e.Close()
		var ev Event
		start := time.Now()
		require.ErrorIs(t, e.WaitFor(time.Hour, &ev), context.DeadlineExceeded)
		require.GreaterOrEqual(t, time.Since(start), time.Hour)
		time.AfterFunc(time.Minute, func() { in.arrive(&ev) })
		require.NoError(t, e.WaitFor(time.Hour, &ev))
	})
}

func TestIdleEngineSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &inbox{ready: make(chan *Event, 1)}
		e, err := NewEngine(in, Options{})
		require.NoError(t, err)
		in.engine.Store(e)
		defer e.Close()
		var ev Event
		in.arrive(&ev)
		require.NoError(t, e.WaitFor(time.Second, &ev))
		time.Sleep(time.Second) // everything is armed
		before := in.polls.Load()
		time.Sleep(time.Hour)
		require.Equal(t, before, in.polls.Load(), "an idle engine polled")
	})
}

// A program that waits for long costs nothing either, however it waits.
func TestLongWaitSleeps(t *testing.T) {
	for _, mode := range []Mode{Auto, Park} {
		synctest.Test(t, func(t *testing.T) {
			in := &inbox{ready: make(chan *Event, 1)}
			e, err := NewEngine(in, Options{Mode: mode})
			require.NoError(t, err)
			in.engine.Store(e)
			defer e.Close()
			var ev Event
			done := make(chan error, 1)
			go func() { done <- e.WaitFor(24*time.Hour, &ev) }()
			time.Sleep(time.Second)
			before, flushes := in.polls.Load(), in.flushes.Load()
			time.Sleep(time.Hour)
			require.Equal(t, before, in.polls.Load(), "a parked node polled")
			require.Equal(t, flushes, in.flushes.Load())
			in.arrive(&ev)
			require.NoError(t, <-done)
		})
	}
}

func TestWaitDoesNotAllocate(t *testing.T) {
	in, e := newInbox(t, Options{})
	var ev Event
	one := func() {
		ev.Reset()
		in.arrive(&ev)
		if err := e.WaitFor(bound, &ev); err != nil {
			t.Error(err)
		}
	}
	for range 100 {
		one()
	}
	require.Zero(t, testing.AllocsPerRun(1000, one))
}

func BenchmarkWaitDriven(b *testing.B) {
	in, e := newInbox(b, Options{})
	var ev Event
	for b.Loop() {
		ev.Reset()
		in.ready <- &ev
		if err := e.WaitFor(bound, &ev); err != nil {
			b.Fatal(err)
		}
	}
}

// The engine does not take the moving of a large message for an absence. The absence of the program begins when the
// Poll that moved the message has ended.
func TestALongPollIsNoAbsence(t *testing.T) {
	in, e := newInbox(t, Options{})
	until(e.token.takeClosed)
	slow := &slowSource{inbox: in}
	e.src = slow
	e.token.giveAndClear(0)
	for range 20 {
		until(e.token.take)
		e.beginDriving(nanotime())
		in.ready <- new(Event)
		require.Equal(t, 1, e.src.Poll(true))
		e.endDriving(false)
		require.GreaterOrEqual(t, e.absence.left.Load(), slow.ended)
	}
}

// until tries again and again.
func until(done func() bool) {
	for !done() {
		runtime.Gosched()
	}
}

// slowSource takes longer for a Poll than what counts as an absence.
type slowSource struct {
	*inbox
	ended int64
}

func (s *slowSource) Poll(all bool) int {
	n := s.inbox.Poll(all)
	if n > 0 {
		s.inbox.engine.Load().NoteDelay()
		for end := nanotime() + 2*longAbsence; nanotime() < end; {
		}
		s.ended = nanotime()
	}
	return n
}
