package progress

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A share of waits that lose their core, larger than that at which spinning pays, ends in heavy
// pressure; a smaller one does not.
func TestPressureFollowsTheShareOfLosses(t *testing.T) {
	for _, c := range []struct {
		good  int // waits that end well for each that does not
		heavy bool
	}{{0, true}, {3, true}, {6, true}, {12, false}, {100, false}} {
		var crew team
		heavy := 0
		for range 200 {
			crew.press(int64(time.Millisecond))
			if crew.heavy() {
				heavy++
			}
			for range c.good {
				if crew.heavy() {
					break // the others sleep at once
				}
				crew.ease()
			}
		}
		require.Equal(t, c.heavy, heavy > 0, "%d good ones", c.good)
	}
}

func TestPressureEnds(t *testing.T) {
	var crew team
	for range 100 {
		crew.press(int64(time.Second))
	}
	require.EqualValues(t, mostPressure, crew.pressure.Load())
	tries := 0
	for ; crew.heavy(); tries++ {
		crew.ease()
	}
	require.LessOrEqual(t, tries, 3, "waits that try anyway, and do well, are soon believed")
	for range 100 {
		crew.ease()
	}
	require.Zero(t, crew.pressure.Load())
}

func TestLongLossWeighsMore(t *testing.T) {
	var crew team
	crew.press(int64(50 * time.Millisecond)) // a quota that was used up
	require.True(t, crew.heavy())
}

// One processor is left to the rest of the program, but somebody may always spin.
func TestCrewIsBounded(t *testing.T) {
	for cores, want := range map[int32][2]int{1: {1, 0}, 2: {1, 1}, 4: {3, 3}} {
		for i, first := range []int32{1, 0} {
			var crew team
			crew.cores.Store(cores)
			n := 0
			for crew.enlist(first) {
				n++
			}
			require.Equal(t, want[i], n, "%d cores", cores)
			require.EqualValues(t, n, crew.busy.Load())
		}
	}
}

func TestBudgetsFollowTheCores(t *testing.T) {
	spin, yield := budgets(Options{Spin: time.Second, Yield: time.Minute, Cores: 8})
	require.LessOrEqual(t, spin, int64(time.Second))
	require.Equal(t, int64(time.Minute), yield)
	spin, _ = budgets(Options{Cores: 1})
	require.Zero(t, spin, "the other side cannot run while this one spins")
	spin, _ = budgets(Options{Cores: 0.5, Spin: time.Second})
	require.Zero(t, spin)
}

func TestBudgetLasts(t *testing.T) {
	b := budget{spin: 10, yield: 20}
	for idle, want := range map[int64]bool{0: true, 9: true, 10: true, 29: true, 30: false, 1000: false} {
		require.Equal(t, want, b.lasts(idle, 1), idle)
	}
	require.False(t, b.lasts(0, 2*mostRounds), "a clock that stands still")
	endless := (&Engine{mode: Spin, spin: 10}).budget()
	require.True(t, endless.lasts(int64(time.Hour), 100*mostRounds))
}

// Under heavy pressure waits sleep at once, but for one in so many.
func TestHeavyPressureEndsSpinning(t *testing.T) {
	defer crew.pressure.Store(0)
	crew.pressure.Store(mostPressure)
	e := &Engine{threaded: true}
	n := 0
	for range 10 * retry {
		if e.spins() {
			n++
		}
	}
	require.Equal(t, 10, n)
	require.True(t, (&Engine{mode: Spin}).spins(), "whoever asks for spinning gets it")
	require.False(t, (&Engine{mode: Park}).spins())
	crew.pressure.Store(0)
	require.True(t, e.spins())
}

// In a process whose goroutines wait for processors, waiters keep none, unless they were told to spin.
func TestCrowdedProcessesDoNotSpin(t *testing.T) {
	defer crew.crowded.Store(false)
	crew.looked.Store(nanotime() + int64(time.Hour)) // nobody looks meanwhile
	defer crew.looked.Store(0)
	e := &Engine{threaded: true}
	require.True(t, e.spins())
	crew.crowded.Store(true)
	require.False(t, e.spins())
	require.True(t, (&Engine{mode: Spin}).spins())
	done, err := e.nap(&Event{}, &limit{d: -1}, false)
	require.False(t, done, "a nap keeps a processor too")
	require.NoError(t, err)
}

// A look is taken once in a while, and finds an idle process idle.
func TestLookAtTheGoroutines(t *testing.T) {
	var crew team
	crew.cores.Store(1)
	crew.crowded.Store(true)
	now := nanotime()
	crew.look(now)
	require.Equal(t, now, crew.looked.Load())
	crew.look(now + lookEvery/2)
	require.Equal(t, now, crew.looked.Load(), "too early")
	require.Zero(t, testing.AllocsPerRun(100, func() { crew.looked.Store(0); crew.look(nanotime()) }))
}

// A crowd that comes and goes is taken for one that stays.
func TestACrowdIsForgottenSlowly(t *testing.T) {
	var crew team
	crew.judge(false)
	require.False(t, crew.crowded.Load())
	for range 3 {
		crew.judge(true)
		for range calmLooks - 1 {
			crew.judge(false)
			require.True(t, crew.crowded.Load())
		}
	}
	crew.judge(false)
	require.False(t, crew.crowded.Load())
	crew.judge(false)
	require.False(t, crew.crowded.Load())
}
