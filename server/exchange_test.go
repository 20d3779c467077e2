package server_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// take takes a batch. The end of the test drops the requests that the test does not answer.
func take(t testing.TB, s *Server, p stepvan.Policy) []server.Request {
	t.Helper()
	b, err := s.GetBatch(Context(t), p)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = s.Server.Close()
		for _, r := range b.Requests {
			_, _ = s.Respond(nil, r.ID)
		}
	})
	return b.Requests
}

// push pushes x under key k and pulls one float under key k+1.
func push(t testing.TB, w *Worker, k tensor.Key, x ...float32) (worker.Handle, tensor.Tensor) {
	t.Helper()
	out := Floats(t, -1)
	h, err := w.PushPull(List(Floats(t, x...)), Keys(k), List(out), Keys(k+1))
	require.NoError(t, err)
	return h, out
}

// respond answers, and waits for the acknowledgement.
func respond(t testing.TB, s *Server, h server.RequestID, x ...tensor.Tensor) {
	t.Helper()
	r, err := s.Respond(x, h)
	require.NoError(t, err)
	require.NoError(t, r.Wait(Context(t)))
}

// requireNoBatch checks that s has no batch for policy p.
func requireNoBatch(t testing.TB, s *Server, p stepvan.Policy) {
	t.Helper()
	var b server.Batch
	require.ErrorIs(t, s.GetBatchFor(0, p, &b), context.DeadlineExceeded)
}

// awaitRequests waits until n requests are unanswered at s.
func awaitRequests(t testing.TB, s *Server, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return s.Stats().Unanswered == n }, WaitLimit, 1)
}

func ranks(r ...stepvan.Rank) []stepvan.Rank { return r }

func TestRespondThatDoesNotFitSendsNothing(t *testing.T) {
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	outs := List(Floats(t, 0, 0), Floats(t, 0))
	h, err := w.Do(&worker.Exchange{Pull: outs, PullKeys: Keys(1, 2), Variable: []bool{false, true}})
	require.NoError(t, err)
	handler := take(t, s, stepvan.DefaultPolicy)[0].ID
	closed, err := s.Memory.Zeros(tensor.Float32, 2)
	require.NoError(t, err)
	require.NoError(t, closed.Region().Close())
	two, one := Floats(t, 1, 2), Floats(t, 3)
	cases := []struct {
		name    string
		tensors []tensor.Tensor
		handler server.RequestID
		is      error
		says    string
	}{
		{"too few", List(two), handler, stepvan.ErrInvalid, "request of worker 0: there must be one per pull (got 1, want 2)"},
		{"too many", List(two, one, one), handler, stepvan.ErrInvalid, "request of worker 0: there must be one per pull (got 3, want 2)"},
		{"none", nil, handler, stepvan.ErrInvalid, "request of worker 0: there must be one per pull (got 0, want 2)"},
		{"too small", List(one, one), handler, stepvan.ErrInvalid, "the pull of key 1 is too small (got 4 bytes, want 8)"},
		{"too large", List(two, two), handler, stepvan.ErrInvalid, "the pull of key 2 is too large (got 8 bytes, want at most 4)"},
		{"zero tensor", List(two, tensor.Tensor{}), handler, stepvan.ErrInvalid, "key 2"},
		{"closed", List(closed, one), handler, stepvan.ErrClosed, "key 1"},
		{"unknown handler", List(two, one), handler + 1, stepvan.ErrStale, "never given"},
		{"another generation", List(two, one), handler + 1<<32, stepvan.ErrStale, "never given"},
		{"no handler", List(two, one), 0, stepvan.ErrStale, "never given"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			_, err := s.Respond(tc.tensors, tc.handler)
			require.ErrorIs(t, err, tc.is)
			require.ErrorContains(t, err, tc.says)
		})
	}
	require.False(t, h.Done())
	respond(t, s, handler, two, one)
	require.NoError(t, h.Wait(Context(t)))
	require.Equal(t, []float32{1, 2}, Values(t, outs[0]))
	_, err = s.Respond(List(two, one), handler)
	require.ErrorIs(t, err, stepvan.ErrStale, "a second respond")
	require.ErrorContains(t, err, "answered before")
}

func TestResponseTensorsAreBorrowedUntilAcknowledged(t *testing.T) {
	c := New(t, Options{Van: WithFaults(Mem())})
	w, s := c.Workers[0], c.Servers[0]
	h, _ := push(t, w, 1, 1)
	req := take(t, s, stepvan.DefaultPolicy)[0]
	back, err := s.Memory.Zeros(tensor.Float32, 1)
	require.NoError(t, err)
	require.True(t, c.Net.Stall("worker 0"))
	r, err := s.Respond(List(back), req.ID)
	require.NoError(t, err, "it returns at once")
	require.False(t, r.Done())
	require.ErrorIs(t, r.WaitFor(0), context.DeadlineExceeded)
	late := r.WaitFor(time.Millisecond)
	require.ErrorIs(t, late, context.DeadlineExceeded)
	require.EqualError(t, late, "respond: not every worker has acknowledged it: stepvan: wait: gave up after 1ms; the operation continues and can be waited for again")
	require.ErrorIs(t, back.Region().Close(), stepvan.ErrBusy)
	require.True(t, c.Net.Resume("worker 0"))
	require.NoError(t, h.Wait(Context(t)))
	require.NoError(t, r.Wait(Context(t)))
	require.NoError(t, r.Err())
	require.NoError(t, back.Region().Close())
	require.Equal(t, r, s.Response(r.ID()))
	require.ErrorIs(t, server.Response{}.Wait(Context(t)), stepvan.ErrStale)
	require.ErrorIs(t, server.Response{}.WaitFor(0), stepvan.ErrStale)
	require.ErrorIs(t, server.Response{}.Err(), stepvan.ErrStale)
	require.True(t, server.Response{}.Done())
}

func TestLargeResponses(t *testing.T) {
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	const n = 5 << 20 // several pieces, in bulk
	out, err := tensor.FromSlice(make([]uint8, n))
	require.NoError(t, err)
	h, err := w.PushPull(nil, nil, List(out), Keys(1))
	require.NoError(t, err)
	data := make([]uint8, n)
	for i := range data {
		data[i] = uint8(i * 7)
	}
	back, err := tensor.FromSlice(data)
	require.NoError(t, err)
	respond(t, s, take(t, s, stepvan.DefaultPolicy)[0].ID, back)
	require.NoError(t, h.Wait(Context(t)))
	require.Equal(t, data, out.Bytes())
}

func TestPushesWithoutABufferLandAlignedInPooledMemory(t *testing.T) {
	c := New(t, Options{Server: server.Options{PoolLimit: 256}})
	w, s := c.Workers[0], c.Servers[0]
	odd, err := tensor.FromSlice([]uint8{1, 2, 3})
	require.NoError(t, err)
	wide, err := tensor.FromSlice([]float64{4, 5})
	require.NoError(t, err)
	h, err := w.PushPull(List(odd, wide), Keys(1, 2), nil, nil)
	require.NoError(t, err)
	req := take(t, s, stepvan.DefaultPolicy)[0]
	got, err := tensor.As[float64](req.Pushes()[1])
	require.NoError(t, err)
	require.Equal(t, []float64{4, 5}, got)
	kept := req.Pushes()[1]
	respond(t, s, req.ID)
	require.Nil(t, kept.Bytes(), "it ends with the respond")
	require.NoError(t, h.Wait(Context(t)))

	h, out := push(t, w, 10, make([]float32, 65)...)
	err = h.Wait(Context(t))
	require.ErrorIs(t, err, stepvan.ErrRemote)
	require.ErrorContains(t, err, "want at most 256")
	require.Equal(t, []float32{-1}, Values(t, out))
	_, err = s.GetBatch(Context(t), stepvan.DefaultPolicy)
	require.ErrorIs(t, err, stepvan.ErrRefused)
	h, _ = push(t, w, 10, 1)
	respond(t, s, take(t, s, stepvan.DefaultPolicy)[0].ID, Floats(t, 2))
	require.NoError(t, h.Wait(Context(t)), "nothing else is disturbed")
}

func TestUseAfterClose(t *testing.T) {
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	buffer, err := s.Memory.Zeros(tensor.Float32, 2)
	require.NoError(t, err)
	reg, err := s.RegisterRecvBuffer(buffer, ranks(0, 0), Keys(1, 2))
	require.NoError(t, err)
	push(t, w, 1, 1)
	held := take(t, s, stepvan.DefaultPolicy)[0]
	push(t, w, 3, 1)
	awaitRequests(t, s, 2)
	require.NoError(t, s.Server.Close())
	require.NoError(t, s.Server.Close(), "twice")
	awaitRequests(t, s, 1) // what no batch has taken is dropped, at the latest when it is whole
	_, err = s.GetBatch(Context(t), stepvan.AnyReady)
	require.ErrorIs(t, err, stepvan.ErrClosed)
	_, err = s.RegisterRecvBuffer(Floats(t, 1), ranks(0), Keys(1))
	require.ErrorIs(t, err, stepvan.ErrClosed)
	require.Len(t, held.Pushes(), 1, "the program may still look at it")
	require.ErrorIs(t, buffer.Region().Close(), stepvan.ErrBusy)
	_, err = s.Respond(List(Floats(t, 1)), held.ID)
	require.ErrorIs(t, err, stepvan.ErrClosed)
	require.Zero(t, s.Stats().Unanswered)
	require.False(t, reg.Live())
	require.NoError(t, reg.Unregister())
	require.NoError(t, buffer.Region().Close())
	h, _ := push(t, w, 5, 1)
	require.ErrorIs(t, h.Wait(Context(t)), stepvan.ErrRemote)
}

func TestOptionsAndJoin(t *testing.T) {
	p := NewPeer(t, Options{Van: Mem()}, "alone", 9)
	_, err := server.New(p.Transport, server.Options{Policy: -2})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	s, err := server.New(p.Transport, server.Options{})
	require.NoError(t, err)
	_, err = s.GetBatch(Context(t), stepvan.DefaultPolicy)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "not paired")
	require.ErrorIs(t, s.Join(0, nil), stepvan.ErrInvalid)
	require.ErrorIs(t, s.Join(0, []server.Worker{{Rank: 1}, {Rank: 1}}), stepvan.ErrInvalid)
	for p, name := range map[stepvan.Policy]string{
		stepvan.LockStep: "lockstep", stepvan.AnyReady: "any", stepvan.DefaultPolicy: "default", stepvan.AtLeast(3): "at least 3",
	} {
		require.Equal(t, name, p.String())
	}
}
