package worker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/tensor"
)

// A goroutine that learns that a handle is done may close the memory of its tensors. That also holds when another
// goroutine finds the answer.
func TestMemoryIsFreeWhenTheHandleIsDone(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		x := newSteady(t, v, false)
		rounds := 2000
		if testing.Short() {
			rounds = 200
		}
		closing := make(chan error, 1)
		for range rounds {
			push, err := x.w.Memory.Empty(tensor.Float32, 8)
			require.NoError(t, err)
			req := x.req
			req.Push, req.PushKeys = List(push), Keys(1)
			h, err := x.w.Do(&req)
			require.NoError(t, err)
			go func() {
				for !h.Done() {
				}
				closing <- push.Region().Close()
			}()
			require.NoError(t, x.s.GetBatchFor(WaitLimit, 0, &x.batch))
			_, err = x.s.Respond(x.answer, x.batch.Requests[0].ID)
			require.NoError(t, err)
			require.NoError(t, h.WaitFor(WaitLimit))
			require.NoError(t, <-closing)
		}
	})
}
