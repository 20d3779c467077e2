package bench

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Run(t.Context(), options(t, o))
			require.NoError(t, err)
			require.Positive(t, r.P50)
			require.GreaterOrEqual(t, r.P99, r.P50)
			require.Positive(t, r.LimitP50)
			require.Positive(t, r.Ratio)
			var b bytes.Buffer
			require.NoError(t, r.WriteJSON(&b))
			t.Log(b.String())
		})
	}
}
