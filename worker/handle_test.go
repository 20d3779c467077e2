package worker_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
	"github.com/stepvan/stepvan/worker"
)

func TestTimedOutHandleCanBeWaitedForAgainAndOwnsItsTensors(t *testing.T) {
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	push, err := w.Memory.Zeros(tensor.Float32, 4)
	require.NoError(t, err)
	pull, err := w.Memory.Zeros(tensor.Float32, 4)
	require.NoError(t, err)
	h, err := w.PushPull(List(push), Keys(1), List(pull), Keys(2))
	require.NoError(t, err)
	require.ErrorIs(t, h.WaitFor(time.Millisecond), context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, h.Wait(ctx), context.Canceled)
	require.NoError(t, h.Err(), "a wait that timed out is not the request's failure")
	require.ErrorIs(t, push.Region().Close(), stepvan.ErrBusy)
	require.ErrorIs(t, pull.Region().Close(), stepvan.ErrBusy)

	answer(t, s, batch(t, s)[0].ID, Floats(t, 1, 2, 3, 4))
	require.NoError(t, h.Wait(Context(t)))
	require.NoError(t, push.Region().Close())
	require.NoError(t, pull.Region().Close())
}

// A wait that ends before its exchange says which server is late, in what way and for how long.
func TestWaitsThatEndBeforeTheirRequestNameTheServer(t *testing.T) {
	c := New(t, Options{Servers: 3})
	w := c.Workers[0]
	h, err := w.PushPull(List(Floats(t, 1)), Keys(1), nil, nil)
	require.NoError(t, err)
	answer(t, c.Servers[0], batch(t, c.Servers[0])[0].ID)
	rest := []server.Request{batch(t, c.Servers[1])[0], batch(t, c.Servers[2])[0]}
	answeredBy := func(err error, peer string, says ...string) {
		t.Helper()
		var op *stepvan.OpError
		require.ErrorAs(t, err, &op)
		require.Equal(t, peer, op.Peer)
		for _, text := range says {
			require.ErrorContains(t, err, text)
		}
		require.NotContains(t, err.Error(), "context deadline exceeded")
	}
	err = h.WaitFor(50 * time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
	answeredBy(err, "server 1", "the wait timed out", "delivered, not answered for ", "1 of the other 2 servers")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err = h.Wait(ctx)
	require.ErrorIs(t, err, context.Canceled)
	answeredBy(err, "server 1", "the wait was cancelled")
	for i, s := range c.Servers[1:] {
		answer(t, s, rest[i].ID)
	}
	require.NoError(t, h.Wait(Context(t)))
}

func TestUnknownAndRecycledHandles(t *testing.T) {
	c := New(t, Options{Worker: worker.Options{Handles: 2}})
	w, s := c.Workers[0], c.Servers[0]
	first, err := w.PushPull(nil, nil, List(Floats(t, 0)), Keys(1))
	require.NoError(t, err)
	answer(t, s, batch(t, s)[0].ID, Floats(t, 1))
	require.NoError(t, first.Wait(Context(t)))
	require.Equal(t, first, w.Handle(first.ID()))
	for range 3 { // the third has the worker recycle what is finished
		require.NoError(t, first.WaitFor(0))
		h, err := w.PushPull(nil, nil, List(Floats(t, 0)), Keys(1))
		require.NoError(t, err)
		answer(t, s, batch(t, s)[0].ID, Floats(t, 1))
		require.NoError(t, h.Wait(Context(t)))
	}
	for _, h := range []worker.Handle{first, {}, w.Handle(0), w.Handle(1 << 40)} {
		require.ErrorIs(t, h.Wait(Context(t)), stepvan.ErrStale)
		require.ErrorIs(t, h.WaitFor(-1), stepvan.ErrStale)
		require.ErrorIs(t, h.Err(), stepvan.ErrStale)
		require.True(t, h.Done())
		_, err := h.Trace()
		require.ErrorIs(t, err, stepvan.ErrStale)
		_, err = h.Traces()
		require.ErrorIs(t, err, stepvan.ErrStale)
		_, err = h.Handles()
		require.ErrorIs(t, err, stepvan.ErrStale)
		_, err = h.Lengths()
		require.ErrorIs(t, err, stepvan.ErrStale)
		_, err = h.PullLen(0)
		require.ErrorIs(t, err, stepvan.ErrStale)
	}
}

func TestErrorThatNobodyWaitedForIsCounted(t *testing.T) {
	c := New(t, Options{Worker: worker.Options{Handles: 1, Routing: stepvan.ByKey}}) // which the server refuses
	w := c.Workers[0]
	pull := func() worker.Handle {
		h, err := w.PushPull(nil, nil, List(Floats(t, 0)), Keys(1))
		require.NoError(t, err)
		return h
	}
	seen := pull()
	require.ErrorIs(t, seen.Wait(Context(t)), stepvan.ErrRemote)
	for range 3 {
		h := pull()
		require.Eventually(t, h.Done, WaitLimit, time.Millisecond)
	}
	require.EqualValues(t, 1, w.Stats().UnseenErrors, "the seen one is not, nor the two that the worker still keeps")
}

func TestHandlesOfTheOperations(t *testing.T) {
	c := New(t, Options{Servers: 2})
	pulls := List(Floats(t, 0), Floats(t, 0), Floats(t, 0), Floats(t, 0))
	h, err := c.Workers[0].PushPull(List(Floats(t, 1), Floats(t, 1)), Keys(1, 2), pulls, Keys(3, 4, 5, 6))
	require.NoError(t, err)
	for _, s := range c.Servers {
		answer(t, s, batch(t, s)[0].ID, Floats(t, 1), Floats(t, 2))
	}
	require.NoError(t, h.Wait(Context(t)))
	all, err := h.Handles()
	require.NoError(t, err)
	require.Len(t, all, 4, "two pushes, and two pulls per server")
	require.Equal(t, h, all[0])
	for i, x := range all {
		require.Equal(t, i, x.Op())
		require.NoError(t, x.Wait(Context(t)))
	}
}

func TestTraces(t *testing.T) {
	wr, sr := trace.NewRing(16), trace.NewRing(16)
	o := Options{Servers: 2}
	o.Worker.Trace, o.Server.Trace = wr, sr
	c := New(t, o)
	h, err := c.Workers[0].Do(&worker.Exchange{
		Push: List(Floats(t, 1, 2)), PushKeys: Keys(11), Label: "layer 3",
		Pull: List(Floats(t, 0), Floats(t, 0)), PullKeys: Keys(12, 13),
	})
	require.NoError(t, err)
	_, err = h.Trace()
	require.ErrorIs(t, err, stepvan.ErrInvalid, "before it has completed")
	for _, s := range c.Servers { // server 1 finishes last
		answer(t, s, batch(t, s)[0].ID, Floats(t, 1))
	}
	require.NoError(t, h.Wait(Context(t)))
	all, err := h.Traces()
	require.NoError(t, err)
	require.Len(t, all, 2)
	last, err := h.Trace()
	require.NoError(t, err)
	require.Equal(t, all[1], last)
	for _, st := range all {
		for i := range trace.StampCount - 1 { // one process, one clock
			require.NotZero(t, st[i])
			if i != trace.RequestPostSend { // taken while the message may be there already
				require.LessOrEqual(t, st[i], st[i+1], "stamp %d", i)
			}
		}
	}
	entries := wr.Snapshot()
	require.Len(t, entries, 2)
	require.Equal(t, "layer 3", entries[1].Label)
	require.EqualValues(t, 11, entries[1].Key)
	require.EqualValues(t, 8, entries[1].BytesOut)
	require.EqualValues(t, 4, entries[1].BytesBack)
	require.EqualValues(t, 1, entries[1].Server)
	require.Len(t, sr.Snapshot(), 2)
	require.Zero(t, sr.Snapshot()[0].Stamps[trace.RequestStart])
	require.NotZero(t, sr.Snapshot()[0].Stamps[trace.ResponsePostSend])
}

func TestEachRegistrationHoldsItsMemory(t *testing.T) {
	c := New(t, Options{})
	w := c.Workers[0]
	x, err := w.Memory.Zeros(tensor.Float32, 4, 2)
	require.NoError(t, err)
	r, err := w.Register(x)
	require.NoError(t, err)
	again, err := w.Register(x)
	require.NoError(t, err)
	require.NotSame(t, r, again)
	row, err := x.Slice(0, 1)
	require.NoError(t, err)
	other, err := w.Register(row)
	require.NoError(t, err)
	require.NotSame(t, r, other)
	require.NoError(t, other.Close())
	require.ErrorIs(t, x.Region().Close(), stepvan.ErrBusy)
	require.Equal(t, x, r.Tensor())
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	require.ErrorIs(t, x.Region().Close(), stepvan.ErrBusy, "the other registration")
	require.NoError(t, again.Close())
	require.NoError(t, x.Region().Close())
	_, err = w.Register(x)
	require.ErrorIs(t, err, stepvan.ErrClosed)
}
