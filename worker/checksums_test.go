package worker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/worker"
)

func TestPushesThatAreChangedTooEarlyAreFound(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v, Worker: worker.Options{CheckBorrowed: true}})
		w, s := c.Workers[0], c.Servers[0]
		good, bad := Floats(t, 1, 2, 3), Floats(t, make([]float32, 10_000)...)
		for i, change := range []bool{false, true, false} {
			h, err := w.PushPull(List(good, bad), Keys(1, 2), List(Floats(t, 0)), Keys(3))
			require.NoError(t, err)
			b, err := s.GetBatch(Context(t), stepvan.DefaultPolicy)
			require.NoError(t, err)
			if change {
				Values(t, bad)[9_999] = float32(i)
			}
			_, err = s.Respond(List(Floats(t, 5)), b.Requests[0].ID)
			require.NoError(t, err)
			err = h.Wait(Context(t))
			if !change {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			require.ErrorContains(t, err, "push tensor 1 (key 2): it was changed before its handle had finished")
		}
	})
}
