package worker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/tensor"
)

// One server may read a push and write a pull in the same tensor. Pulls may lie beside each other in any order.
// Budget: 0 allocations.
func TestPullsBesideEachOther(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		x := newSteady(t, v, false)
		row, err := x.w.Memory.Zeros(tensor.Float32, 30)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, row.Region().Close()) })
		x.req.Pull, x.req.PullKeys, x.req.Variable, x.answer = nil, nil, nil, nil
		for i := range 30 {
			at := int64(i * 7 % 30)
			one, err := row.Slice(at, at+1)
			require.NoError(t, err)
			x.req.Pull, x.req.PullKeys = append(x.req.Pull, one), append(x.req.PullKeys, tensor.Key(100+i))
			x.answer = append(x.answer, Floats(t, float32(at)))
		}
		x.req.Push[0] = row
		for range 500 {
			x.round()
		}
		for i, f := range Values(t, row) {
			require.Equal(t, float32(i), f)
		}
		if Race && v.Name != "mem" {
			return // waiters park there, with timers of a sync.Pool
		}
		require.Zero(t, testing.AllocsPerRun(200, x.round))
	})
}
