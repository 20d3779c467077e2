package worker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
)

// batch takes the next batch of s by its own policy.
func batch(t testing.TB, s *Server) []server.Request {
	t.Helper()
	b, err := s.GetBatch(Context(t), server.Default)
	require.NoError(t, err)
	return b.Requests
}

// answer answers one request and waits until the worker has acknowledged.
func answer(t testing.TB, s *Server, h server.Handler, x ...tensor.Tensor) {
	t.Helper()
	r, err := s.Respond(x, h)
	require.NoError(t, err)
	require.NoError(t, r.Wait(Context(t)))
}

func TestPushPull(t *testing.T) {
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	out := Floats(t, 0, 0)
	h, err := w.PushPull(List(Floats(t, 1, 2, 3)), Keys(7), List(out), Keys(8))
	require.NoError(t, err)
	require.False(t, h.Done())

	reqs := batch(t, s)
	require.Len(t, reqs, 1)
	require.Equal(t, Keys(7), reqs[0].PushKeys())
	require.Equal(t, []float32{1, 2, 3}, Values(t, reqs[0].Pushes()[0]))
	require.Equal(t, []server.Pull{{Key: 8, Bytes: 8, DType: tensor.Float32, Shape: tensor.ShapeOf(2)}}, reqs[0].Pulls())
	answer(t, s, reqs[0].Handler, Floats(t, 4, 5))

	require.NoError(t, h.Wait(Context(t)))
	require.Equal(t, []float32{4, 5}, Values(t, out))
	require.NoError(t, h.WaitFor(0), "again")
	require.NoError(t, h.Err())
	require.Nil(t, reqs[0].Pushes(), "after the respond")
}

func TestBroadcastIsServerMajor(t *testing.T) {
	c := New(t, Options{Workers: 2, Servers: 3})
	for wi, w := range c.Workers {
		var pulls []tensor.Tensor
		var keys []tensor.Key
		for i := range 6 {
			pulls, keys = append(pulls, Floats(t, -1)), append(keys, tensor.Key(100+i))
		}
		h, err := w.PushPull(List(Floats(t, float32(wi)), Floats(t, 9)), Keys(1, 2), pulls, keys)
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, h.Wait(Context(t)))
			for i, p := range pulls {
				require.Equal(t, []float32{float32(wi*100 + i)}, Values(t, p))
			}
		})
	}
	for si, s := range c.Servers {
		reqs := batch(t, s)
		require.Len(t, reqs, 2)
		for wi, r := range reqs {
			require.EqualValues(t, wi, r.Worker)
			require.Equal(t, []float32{float32(wi)}, Values(t, r.Pushes()[0]))
			base := float32(wi*100 + si*2)
			answer(t, s, r.Handler, Floats(t, base), Floats(t, base+1))
		}
	}
}
