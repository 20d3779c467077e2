package worker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
	"github.com/stepvan/stepvan/worker"
)

// batch takes the next batch of s by its own policy.
func batch(t testing.TB, s *Server) []server.Request {
	t.Helper()
	b, err := s.GetBatch(Context(t), stepvan.DefaultPolicy)
	require.NoError(t, err)
	return b.Requests
}

// answer answers one request and waits until the worker has acknowledged.
func answer(t testing.TB, s *Server, h server.RequestID, x ...tensor.Tensor) {
	t.Helper()
	r, err := s.Respond(x, h)
	require.NoError(t, err)
	require.NoError(t, r.Wait(Context(t)))
}

func TestPushPull(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v})
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
		answer(t, s, reqs[0].ID, Floats(t, 4, 5))

		require.NoError(t, h.Wait(Context(t)))
		require.Equal(t, []float32{4, 5}, Values(t, out))
		require.NoError(t, h.WaitFor(0), "again")
		require.NoError(t, h.Err())
		require.Nil(t, reqs[0].Pushes(), "after the respond")
	})
}

func TestPushAndPullMayHaveTheSameKey(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v})
		w, s := c.Workers[0], c.Servers[0]
		for x := float32(0); x < 3; x++ {
			out := List(Floats(t, 0), Floats(t, 0))
			h, err := w.PushPull(List(Floats(t, x), Floats(t, x+10)), Keys(0, 1), out, Keys(0, 1))
			require.NoError(t, err)
			r := batch(t, s)[0]
			require.Equal(t, []float32{x}, Values(t, r.Pushes()[0]))
			require.Equal(t, []float32{x + 10}, Values(t, r.Pushes()[1]))
			answer(t, s, r.ID, Floats(t, x+20), Floats(t, x+30))
			require.NoError(t, h.Wait(Context(t)))
			require.Equal(t, []float32{x + 20}, Values(t, out[0]))
			require.Equal(t, []float32{x + 30}, Values(t, out[1]))
		}
	})
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
		defer func() {
			require.NoError(t, h.Wait(Context(t)))
			for i, p := range pulls {
				require.Equal(t, []float32{float32(wi*100 + i)}, Values(t, p))
			}
		}()
	}
	for si, s := range c.Servers {
		reqs := batch(t, s)
		require.Len(t, reqs, 2)
		for wi, r := range reqs {
			require.EqualValues(t, wi, r.Worker)
			require.Equal(t, []float32{float32(wi)}, Values(t, r.Pushes()[0]))
			base := float32(wi*100 + si*2)
			answer(t, s, r.ID, Floats(t, base), Floats(t, base+1))
		}
	}
}

func TestPushWithoutPullsEndsWithTheServersAnswer(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v, Servers: 2})
		w := c.Workers[0]
		push := func() (worker.Handle, error) { return w.PushPull(List(Floats(t, 1)), Keys(42), nil, nil) }
		for range 2 { // its key is free when its handle is done
			h, err := push()
			require.NoError(t, err)
			for _, s := range c.Servers {
				req := batch(t, s)[0]
				require.Equal(t, []float32{1}, Values(t, req.Pushes()[0]))
				require.False(t, h.Done(), "the server has it, and has not answered")
				_, err = push()
				require.ErrorIs(t, err, stepvan.ErrBusy)
				require.ErrorContains(t, err, "key 42")
				answer(t, s, req.ID)
			}
			require.NoError(t, h.Wait(Context(t)))
			all, err := h.Traces()
			require.NoError(t, err)
			for _, st := range all {
				require.NotZero(t, st[trace.ResponsePostSend], "the answer brings the server's timestamps")
			}
		}
	})
}

func TestPullOnly(t *testing.T) {
	c := New(t, Options{})
	out := Floats(t, 0)
	h, err := c.Workers[0].PushPull(nil, nil, List(out), Keys(5))
	require.NoError(t, err)
	req := batch(t, c.Servers[0])[0]
	require.Empty(t, req.Pushes())
	require.EqualValues(t, 5, req.Pulls()[0].Key)
	answer(t, c.Servers[0], req.ID, Floats(t, 3))
	require.NoError(t, h.Wait(Context(t)))
	require.Equal(t, []float32{3}, Values(t, out))
}

func TestZeroSizeTensorsAreLegal(t *testing.T) {
	c := New(t, Options{})
	h, err := c.Workers[0].PushPull(List(Floats(t), Floats(t, 1), Floats(t)), Keys(1, 2, 3), List(Floats(t)), Keys(4))
	require.NoError(t, err)
	req := batch(t, c.Servers[0])[0]
	require.Equal(t, tensor.ShapeOf(0), req.Pushes()[0].Shape())
	require.Equal(t, []float32{1}, Values(t, req.Pushes()[1]))
	answer(t, c.Servers[0], req.ID, Floats(t))
	require.NoError(t, h.Wait(Context(t)))
	h, err = c.Workers[0].PushPull(List(Floats(t)), Keys(1), nil, nil)
	require.NoError(t, err)
	answer(t, c.Servers[0], batch(t, c.Servers[0])[0].ID)
	require.NoError(t, h.Wait(Context(t)))
}

func TestVariablePulls(t *testing.T) {
	c := New(t, Options{})
	whole, part := Floats(t, 0, 0), Floats(t, 7, 7, 7)
	h, err := c.Workers[0].Do(&worker.Exchange{Pull: List(whole, part), PullKeys: Keys(1, 2), Variable: []bool{false, true}})
	require.NoError(t, err)
	_, err = h.PullLen(1)
	require.ErrorIs(t, err, stepvan.ErrInvalid, "before it has completed")
	req := batch(t, c.Servers[0])[0]
	require.False(t, req.Pulls()[0].Variable)
	require.True(t, req.Pulls()[1].Variable)
	answer(t, c.Servers[0], req.ID, Floats(t, 1, 2), Floats(t, 3))
	require.NoError(t, h.Wait(Context(t)))
	require.Equal(t, []float32{3, 7, 7}, Values(t, part))
	lengths, err := h.Lengths()
	require.NoError(t, err)
	require.Equal(t, []int64{8, 4}, lengths)
	n, err := h.PullLen(1)
	require.NoError(t, err)
	require.EqualValues(t, 4, n)
	_, err = h.PullLen(2)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}

func TestManyTensorsOfAllSizes(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v})
		w, s := c.Workers[0], c.Servers[0]
		var r worker.Exchange
		for i := range 100 {
			data := make([]uint8, i*i*37)
			for j := range data {
				data[j] = uint8(i + j)
			}
			x, err := tensor.FromSlice(data)
			require.NoError(t, err)
			y, err := tensor.FromSlice(make([]uint8, len(data)))
			require.NoError(t, err)
			r.Push, r.PushKeys = append(r.Push, x), append(r.PushKeys, tensor.Key(i))
			r.Pull, r.PullKeys = append(r.Pull, y), append(r.PullKeys, tensor.Key(1000+i))
		}
		h, err := w.Do(&r)
		require.NoError(t, err)
		req := batch(t, s)[0]
		answer(t, s, req.ID, append([]tensor.Tensor(nil), req.Pushes()...)...) // views of its own memory
		require.NoError(t, h.Wait(Context(t)))
		for i := range r.Push {
			require.Equal(t, r.Push[i].Bytes(), r.Pull[i].Bytes(), i)
		}
	})
}
