package progress

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Spinning pays up to some share of waits that lose their core. A larger share ends in contention, and a smaller one
// does not.
func TestPressureFollowsTheShareOfLosses(t *testing.T) {
	for _, c := range []struct {
		good      int // waits that end well for each that does not
		contended bool
	}{{0, true}, {3, true}, {6, true}, {12, false}, {100, false}} {
		var cpus processors
		contended := 0
		for range 200 {
			cpus.penalize(int64(time.Millisecond))
			if cpus.contended() {
				contended++
			}
			for range c.good {
				if cpus.contended() {
					break // the others sleep at once
				}
				cpus.reward()
			}
		}
		require.Equal(t, c.contended, contended > 0, "%d good ones", c.good)
	}
}

func TestPressureEnds(t *testing.T) {
	var cpus processors
	for range 100 {
		cpus.penalize(int64(time.Second))
	}
	require.EqualValues(t, mostPressure, cpus.pressure.Load())
	tries := 0
	for ; cpus.contended(); tries++ {
		cpus.reward()
	}
	require.LessOrEqual(t, tries, 3, "waits that try anyway, and do well, are soon believed")
	for range 100 {
		cpus.reward()
	}
	require.Zero(t, cpus.pressure.Load())
}

func TestLongLossWeighsMore(t *testing.T) {
	var cpus processors
	cpus.penalize(int64(50 * time.Millisecond)) // a quota that was used up
	require.True(t, cpus.contended())
}

// Waiters leave one processor to the rest of the program, but the first ones may always spin.
func TestSpinningWaitersAreBounded(t *testing.T) {
	for cores, want := range map[int32][2]int{1: {1, 0}, 2: {1, 1}, 4: {3, 3}} {
		for i, first := range []int32{1, 0} {
			var cpus processors
			cpus.count.Store(cores)
			n := 0
			for cpus.acquire(first) {
				n++
			}
			require.Equal(t, want[i], n, "%d cores", cores)
			require.EqualValues(t, n, cpus.busy.Load())
		}
	}
}

func TestBudgetsFollowTheCores(t *testing.T) {
	p := newPolicy(Options{Spin: time.Second, Yield: time.Minute, Cores: 8}, true)
	require.LessOrEqual(t, p.spin, int64(time.Second))
	require.Equal(t, int64(time.Minute), p.yield)
	p = newPolicy(Options{Cores: 1}, true)
	require.Zero(t, p.spin, "the other side cannot run while this one spins")
	p = newPolicy(Options{Cores: 0.5, Spin: time.Second}, true)
	require.Zero(t, p.spin)
}

func TestBudgetEnds(t *testing.T) {
	b := budget{spin: 10, yield: 20}
	for idle, want := range map[int64]bool{0: true, 9: true, 10: true, 29: true, 30: false, 1000: false} {
		require.Equal(t, want, b.spinOrYield(idle, 1), idle)
	}
	require.False(t, b.spinOrYield(0, 2*mostRounds), "a clock that stands still")
}

// Under contention waits sleep at once, except one in every retryEvery.
func TestContentionEndsSpinning(t *testing.T) {
	defer cpus.pressure.Store(0)
	cpus.pressure.Store(mostPressure)
	p := policy{threaded: true}
	n := 0
	for range 10 * retryEvery {
		if p.spins() {
			n++
		}
	}
	require.Equal(t, 10, n)
	require.True(t, (&policy{mode: Spin}).spins(), "whoever asks for spinning gets it")
	require.False(t, (&policy{mode: Park}).spins())
	cpus.pressure.Store(0)
	require.True(t, p.spins())
}

// When goroutines of the process wait for processors, waiters do not keep any, except in the mode Spin.
func TestOversubscribedProcessesDoNotSpin(t *testing.T) {
	defer cpus.oversubscribed.Store(false)
	cpus.sampledAt.Store(nanotime() + int64(time.Hour)) // nobody looks meanwhile
	defer cpus.sampledAt.Store(0)
	p := policy{threaded: true}
	require.True(t, p.spins())
	cpus.oversubscribed.Store(true)
	require.False(t, p.spins())
	require.True(t, (&policy{mode: Spin}).spins())
	done, err := (&wait{engine: &Engine{policy: p}, ev: &Event{}, d: -1}).sleep()
	require.False(t, done, "a sleeping waiter keeps a processor too")
	require.NoError(t, err)
}

// A sample is taken at most every sampleEvery, and does not allocate.
func TestLookAtTheGoroutines(t *testing.T) {
	var cpus processors
	cpus.count.Store(1)
	cpus.oversubscribed.Store(true)
	now := nanotime()
	cpus.sample(now)
	require.Equal(t, now, cpus.sampledAt.Load())
	cpus.sample(now + sampleEvery/2)
	require.Equal(t, now, cpus.sampledAt.Load(), "too early")
	require.Zero(t, testing.AllocsPerRun(100, func() { cpus.sampledAt.Store(0); cpus.sample(nanotime()) }))
}

// A process that is oversubscribed now and then counts as oversubscribed in between.
func TestOversubscriptionIsForgottenSlowly(t *testing.T) {
	var cpus processors
	cpus.noteSample(false)
	require.False(t, cpus.oversubscribed.Load())
	for range 3 {
		cpus.noteSample(true)
		for range calmAfter - 1 {
			cpus.noteSample(false)
			require.True(t, cpus.oversubscribed.Load())
		}
	}
	cpus.noteSample(false)
	require.False(t, cpus.oversubscribed.Load())
	cpus.noteSample(false)
	require.False(t, cpus.oversubscribed.Load())
}
