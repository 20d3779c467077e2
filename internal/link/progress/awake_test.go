package progress

import (
	"context"
	"flag"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/trace"
	"github.com/stretchr/testify/require"
)

var long = flag.Bool("long", false, "make the tests named Soak long")

// answerer sets events after times that follow a pattern, so that waiters poll, sleep until shortly before, and are
// wrong at times.
func answerer(m *mailbox, asked <-chan *Event, rng *rand.Rand) {
	pattern, patterns := time.Duration(0), []time.Duration{0, 50 * time.Microsecond, 150 * time.Microsecond, 600 * time.Microsecond, 1500 * time.Microsecond}
	for ev := range asked {
		if rng.IntN(50) == 0 {
			pattern = patterns[rng.IntN(len(patterns))]
		}
		d := pattern + time.Duration(rng.IntN(20))*time.Microsecond
		if rng.IntN(10) == 0 {
			d = 0
		}
		for end := trace.Now() + int64(d); d > 0 && trace.Now() < end; {
			if d > 300*time.Microsecond {
				time.Sleep(d / 2)
				d = 1
			}
		}
		m.arrive(ev)
	}
}

// No wait with a history sleeps through its event, also while the clock jumps ahead and back.
func TestNoWaitIsLostSoak(t *testing.T) {
	rounds := 600
	if *long {
		rounds = 250_000
	}
	var offset atomic.Int64
	nanotime = func() int64 { return trace.Now() + offset.Load() }
	t.Cleanup(func() { nanotime = trace.Now })
	forMailboxes(t, func(t *testing.T, m *mailbox) {
		defer offset.Store(0)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		asked := make(chan *Event)
		go answerer(m, asked, rand.New(rand.NewPCG(5, 6)))
		defer close(asked)
		rng := rand.New(rand.NewPCG(7, 8))
		ev := &Event{Kind: Answer}
		for round := range rounds {
			if rng.IntN(20) == 0 {
				offset.Store(rng.Int64N(int64(20*time.Millisecond)) - int64(10*time.Millisecond))
			}
			ev.Reset()
			asked <- ev
			var err error
			if round%2 == 0 {
				err = m.engine.Wait(ctx, ev)
			} else {
				err = m.engine.WaitFor(bound, ev)
			}
			require.NoError(t, err, "round %d", round)
		}
	})
}

// calm makes the engine believe that nobody else wants a processor.
func calm(t *testing.T) {
	cpus.sampledAt.Store(nanotime() + int64(time.Hour)) // nobody looks meanwhile
	reset := func() { cpus.queued.Store(0); cpus.pressure.Store(0) }
	reset()
	t.Cleanup(func() { reset(); cpus.sampledAt.Store(0) })
}

// A waiter whose core nobody wants stays awake for as long as its waits usually take.
func TestAWaiterPollsUntilTheAnswerIsDue(t *testing.T) {
	calm(t)
	e := &Engine{policy: newPolicy(Options{}, true)}
	w := &wait{engine: e, ev: &Event{Kind: Answer}, start: 1}
	b := e.policy.budget(e.history(Answer))
	b.yielded = 1 << 60 // the test has its core or not, which does not matter here
	require.False(t, w.staysAwake(&b, 31*us, 30*us, 10), "nothing is known")
	for range fewest {
		b.history.note(200 * us)
	}
	for at := 31 * us; at < 200*us; at += us {
		require.True(t, w.staysAwake(&b, at, at, 100), at)
	}
	require.True(t, w.staysAwake(&b, 240*us, 240*us, 200), "the answer may be a little late")
	require.False(t, w.staysAwake(&b, 300*us, 300*us, 300), "it does not come soon")
	require.Zero(t, w.wakeAt)
	require.False(t, w.staysAwake(&b, 100*us, 100*us, mostAwake), "a clock that stands still")
}

func TestAWaiterSleepsUntilShortlyBeforeTheAnswer(t *testing.T) {
	calm(t)
	e := &Engine{policy: newPolicy(Options{}, true)}
	w := &wait{engine: e, ev: &Event{Kind: Answer}, start: 1000}
	b := e.policy.budget(e.history(Answer))
	b.yielded = 1 << 60 // the test has its core or not, which does not matter here
	for range fewest {
		b.history.note(3000 * us)
	}
	require.False(t, w.staysAwake(&b, 1000+31*us, 31*us, 10))
	require.Equal(t, 1000+3000*us-firstLate, w.wakeAt)
	w.noteWake(w.wakeAt + firstLate/2)
	require.Less(t, e.policy.late, firstLate)
	w.noteWake(w.wakeAt + 250*us)
	require.Equal(t, 250*us, e.policy.late)
	w.noteWake(w.wakeAt + 10_000*us)
	require.Equal(t, mostLate, e.policy.late)
	w.noteWake(w.wakeAt - us)
	require.Equal(t, mostLate, e.policy.late, "that was woken by a message")
}

// Waits that nothing can be learned of spin and yield for a short time.
func TestRareWaitsHaveNoHistory(t *testing.T) {
	calm(t)
	e := &Engine{policy: newPolicy(Options{}, true)}
	require.Nil(t, e.history(Rare))
	require.Nil(t, e.history(kinds))
	require.NotNil(t, e.history(Request))
	require.Same(t, e.history(Answer), e.history(Answer))
	for _, p := range []policy{newPolicy(Options{Mode: Spin}, true), newPolicy(Options{}, false)} {
		require.Nil(t, (&Engine{policy: p}).history(Answer), "a waiter that never sleeps, or on a channel, learns nothing")
	}
	for _, p := range []policy{newPolicy(Options{Mode: Park}, true), newPolicy(Options{Cores: 1}, true)} {
		h := (&Engine{policy: p}).history(Answer)
		require.NotNil(t, h, "the history tells how long to sleep")
		require.Nil(t, p.budget(h).history, "and not how long to poll")
	}
	b := (&policy{spin: 10, yield: 20}).budget(nil)
	w := &wait{engine: &Engine{}, ev: &Event{}, start: 1}
	require.True(t, w.staysAwake(&b, 26, 25, 2))
	require.False(t, w.staysAwake(&b, 31, 30, 3))
}

// A waiter gives up its core when goroutines of its program wait for a processor.
func TestAWaiterLeavesItsProcessorToTheProgram(t *testing.T) {
	calm(t)
	e := &Engine{policy: newPolicy(Options{}, true)}
	w := &wait{engine: e, ev: &Event{Kind: Answer}, start: 1}
	b := e.policy.budget(e.history(Answer))
	b.yielded = 1 << 60 // the test has its core or not, which does not matter here
	for range fewest {
		b.history.note(200 * us)
	}
	cpus.queued.Store(1)
	require.True(t, w.staysAwake(&b, 50*us, 50*us, 10))
	cpus.queued.Store(2)
	require.False(t, w.staysAwake(&b, 60*us, 60*us, 11))
}

// Yields in which another thread runs end the polling.
func TestASharedCoreEndsThePolling(t *testing.T) {
	calm(t)
	b := budget{shared: mostShared - 1, yielded: 1, preemptions: -1} // the kernel counts more
	now := nanotime() - 2*freeYield                                  // as if the yield had begun then
	require.False(t, b.yieldAtTimes(now))
	b.lost = 0 // the yield may have taken longer than the test needs
	b.report(false)
	require.EqualValues(t, loss, cpus.pressure.Load())
	b.shared, b.gaveWay = 0, true
	b.report(true)
	require.EqualValues(t, loss+gaveWayLoss, cpus.pressure.Load())
}

// Short waits are not in a history, and waits that are given up count as long.
func TestWhatAHistoryHolds(t *testing.T) {
	e := &Engine{policy: newPolicy(Options{}, true)}
	for _, c := range []struct {
		lasted int64
		err    error
		noted  uint32
	}{{20 * us, nil, 0}, {-us, nil, 0}, {0, stepvan.ErrClosed, 0}, {0, errWaitTimeout, math.MaxUint32}, {0, errContextEnded, math.MaxUint32}} {
		w := &wait{engine: e, ev: &Event{Kind: Answer}, start: nanotime()}
		before := e.history(Answer).count
		if c.err == nil {
			w.noteLength(w.start + c.lasted)
		} else {
			w.noteEnd(c.err)
		}
		if c.noted == 0 {
			require.Equal(t, before, e.history(Answer).count)
		} else {
			require.Equal(t, c.noted, e.history(Answer).sorted[before])
		}
	}
}
