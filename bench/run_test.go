package bench

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/launch"
)

func TestRuns(t *testing.T) {
	for name, o := range map[string]Options{
		"echo over tcp":         {Count: 200},
		"echo over unix":        {Van: Unix, Count: 200},
		"echo in one process":   {Van: Mem, Count: 200},
		"afd, two by two":       {Workload: AFD, Workers: 2, Servers: 2, Count: 20, Inflight: 3},
		"afd in one process":    {Workload: AFD, Van: Mem, Workers: 2, Servers: 2, Count: 20, Inflight: 3},
		"for a time":            {Duration: 50 * time.Millisecond, Rounds: 3, Inflight: 4, Progress: "park"},
		"beside a bulk of data": {Count: 50, Bulk: 8 << 20},
		"on one core":           {Count: 200, Pin: 1},
		"starts":                {Workload: Start, Count: 2},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Run(t.Context(), options(t, o))
			require.NoError(t, err)
			require.Positive(t, r.P50)
			require.GreaterOrEqual(t, r.P99, r.P50)
			require.Positive(t, r.LimitP50)
			require.Positive(t, r.Ratio)
		})
	}
}

func TestASignalEndsARun(t *testing.T) {
	for _, v := range []Van{TCP, Mem} {
		t.Run(string(v), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			signals := make(chan os.Signal, 1)
			signals <- unix.SIGINT
			_, err := Run(t.Context(), options(t, Options{Van: v, Duration: time.Hour, Signals: signals}))
			var interrupted *launch.Interrupted
			require.ErrorAs(t, err, &interrupted)
			require.Equal(t, unix.SIGINT, interrupted.Signal)
		})
	}
}

func TestTheContextEndsARun(t *testing.T) {
	why := errors.New("enough")
	for _, v := range []Van{TCP, Mem} {
		t.Run(string(v), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(why)
			_, err := Run(ctx, options(t, Options{Van: v, Duration: time.Hour}))
			require.ErrorIs(t, err, why)
		})
	}
}

// A process that ends is named, with what it said.
func TestAProcessThatFails(t *testing.T) {
	o := options(t, Options{Count: 1})
	o.Node = []string{"/bin/sh", "-c", "echo no luck >&2; exit 3"}
	_, err := Run(t.Context(), o)
	var failure *launch.Failure
	require.ErrorAs(t, err, &failure)
	require.Equal(t, 3, failure.Status)
	require.Contains(t, failure.Stderr, "no luck")
}
