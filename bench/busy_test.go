package bench

import (
	"testing"
	"time"

	"runtime"

	"github.com/stretchr/testify/require"
)

func TestAProgramComputesWhileAFunctionRuns(t *testing.T) {
	processors, ran := runtime.GOMAXPROCS(0), false
	r := computeDuring(func() { ran = true })
	require.True(t, ran)
	require.GreaterOrEqual(t, r.steps, int64(0))
	require.Positive(t, r.elapsed)
	require.Equal(t, processors, runtime.GOMAXPROCS(0))
}

func TestWhatABusyProgramLoses(t *testing.T) {
	const each = 60 * time.Millisecond // of computing, on each core
	alone := busyRun{steps: 2000, elapsed: 2 * time.Second}
	for _, c := range []struct {
		beside   busyRun
		computed time.Duration
		want     float64
	}{
		{busyRun{1000, time.Second}, 0, 0},
		{busyRun{900, time.Second}, 0, 0.1},
		{busyRun{450, time.Second / 2}, 0, 0.1},
		{busyRun{900, time.Second}, time.Duration(runtime.NumCPU() * int(each)), 0.04},
	} {
		require.InDelta(t, c.want, c.beside.lost(alone, c.computed), 1e-9)
	}
}

// What the nodes take is measured in each round. What their server computes does not count.
func TestNodesBesideABusyProgram(t *testing.T) {
	for name, o := range map[string]Options{
		"the server sleeps":     {Work: asleep(t, "1ms-2ms")},
		"the server computes":   {Work: computing(t, "1ms")},
		"the server is at once": {Progress: "park"},
	} {
		t.Run(name, func(t *testing.T) {
			o.Van, o.Count, o.Rounds, o.Cores.Busy = Shm, 40, 2, true
			r, err := Run(t.Context(), options(t, o))
			require.NoError(t, err)
			require.True(t, r.Variant.Busy)
			require.Empty(t, r.Limit)
			require.Len(t, r.Details.Samples.Lost, 2)
			for _, lost := range r.Details.Samples.Lost {
				require.Less(t, lost, 1.0)
			}
		})
	}
}
