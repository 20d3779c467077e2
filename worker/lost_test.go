package worker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// requireLost checks that err names server i.
func requireLost(t *testing.T, err error, name string) {
	t.Helper()
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
	var op *stepvan.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "push_pull", op.Op)
	require.Equal(t, name, op.Peer)
}

func TestLostServerFailsEveryHandleThatNeedsIt(t *testing.T) {
	c := New(t, Options{Van: WithFaults(Mem()), Servers: 2})
	w := c.Workers[0]
	outs := List(Floats(t, -1), Floats(t, -1))
	var handles []worker.Handle
	for k := range tensor.Key(3) {
		h, err := w.PushPull(List(Floats(t, 1)), Keys(10*k), outs, Keys(10*k+1, 10*k+2))
		require.NoError(t, err)
		handles = append(handles, h)
	}
	req := batch(t, c.Servers[0])[0] // server 0 lives, and is slow
	require.True(t, c.Net.Kill("server 1"))
	for _, h := range handles {
		requireLost(t, h.Wait(Context(t)), "server 1")
	}
	_, err := w.PushPull(List(Floats(t, 1)), Keys(77), outs, Keys(78, 79))
	requireLost(t, err, "server 1")

	// The late answer of server 0 is not written, and frees the keys.
	answer(t, c.Servers[0], req.ID, Floats(t, 5))
	require.Equal(t, []float32{-1}, Values(t, outs[0]))
	require.Equal(t, 2, w.Stats().BusyKeys)
	for range 2 {
		answer(t, c.Servers[0], batch(t, c.Servers[0])[0].ID, Floats(t, 5))
	}
	st := w.Stats()
	require.Zero(t, st.BusyKeys)
	require.Zero(t, st.Outstanding)

	// Requests that do not need the lost server are not concerned.
	h, err := w.Do(&worker.Exchange{Routing: stepvan.Broadcast, Pull: outs, PullKeys: Keys(1, 2)})
	requireLost(t, err, "server 1")
	require.Equal(t, worker.Handle{}, h)
}

func TestRequestsToOtherServersGoOn(t *testing.T) {
	c := New(t, anyReady(2, stepvan.Named))
	w := c.Workers[0]
	require.True(t, c.Net.Kill("server 1"))
	out := Floats(t, 0)
	lost, err := w.Do(&worker.Exchange{Pull: List(out), PullKeys: Keys(1), PullTo: []stepvan.Rank{1}})
	if err == nil { // the loss was not known yet
		err = lost.Wait(Context(t))
	}
	requireLost(t, err, "server 1")
	h, err := w.Do(&worker.Exchange{Pull: List(out), PullKeys: Keys(1), PullTo: []stepvan.Rank{0}})
	require.NoError(t, err)
	answer(t, c.Servers[0], batch(t, c.Servers[0])[0].ID, Floats(t, 3))
	require.NoError(t, h.Wait(Context(t)))
}

func TestServerLostInTheMiddleOfItsResponse(t *testing.T) {
	c := New(t, Options{Van: WithFaults(Mem()), Link: func(o *link.Options) { o.PieceBytes = 4096 }})
	w, s := c.Workers[0], c.Servers[0]
	out, err := w.Memory.Zeros(tensor.Uint8, 8<<20)
	require.NoError(t, err)
	h, err := w.PushPull(nil, nil, List(out), Keys(1))
	require.NoError(t, err)
	req := batch(t, s)[0]
	back, err := s.Memory.Zeros(tensor.Uint8, 8<<20)
	require.NoError(t, err)
	r, err := s.Respond(List(back), req.ID)
	require.NoError(t, err)
	require.Equal(t, 1, c.Net.Cut("worker 0", "server 0"))
	answered := r.Wait(Context(t))
	if err := h.Wait(Context(t)); err != nil { // unless all of it had arrived, and may be acknowledged
		requireLost(t, err, "server 0")
		require.Error(t, answered)
	}
	require.NoError(t, out.Region().Close(), "given back")
	require.NoError(t, back.Region().Close(), "given back")
}

func TestServerThatLeaves(t *testing.T) {
	c := New(t, Options{})
	w := c.Workers[0]
	h, err := w.PushPull(nil, nil, List(Floats(t, 0)), Keys(1))
	require.NoError(t, err)
	require.NoError(t, c.Servers[0].Transport.Close()) // before the server, which would refuse the request if it has it
	err = h.Wait(Context(t))
	requireLost(t, err, "server 0")
	require.ErrorIs(t, err, link.ErrLeft)
}

func TestOwnNodeClosed(t *testing.T) {
	c := New(t, Options{})
	w := c.Workers[0]
	h, err := w.PushPull(nil, nil, List(Floats(t, 0)), Keys(1))
	require.NoError(t, err)
	require.NoError(t, w.Transport.Close())
	require.ErrorIs(t, h.Wait(Context(t)), stepvan.ErrClosed)
	_, err = w.PushPull(nil, nil, List(Floats(t, 0)), Keys(1))
	require.ErrorIs(t, err, stepvan.ErrClosed)
	require.Zero(t, w.Stats().Outstanding)
}

// spy does something when its message is done.
type spy func()

func (f spy) Done(*link.Outbound, error) { f() }

// The link fails the messages of a lost session one by one, and tells its channels after that. A handle that failed
// with the first message is over for good. The next request is refused with the same error.
func TestLossIsWholeBeforeItIsSeen(t *testing.T) {
	h := newHost(t, WithFaults(Mem()), func(o *link.Options) { o.CreditBytes = plugBytes })
	defer h.plug()()
	out := Floats(t, 0)
	handle, err := h.w.PushPull(List(Floats(t, 1)), Keys(2), List(out), Keys(3))
	require.NoError(t, err)
	var seen, again error
	var busy int
	done := make(chan struct{})
	require.NoError(t, h.dialled.Send(&link.Outbound{
		Channel: link.ChannelRequest, Op: wire.OpFence, Generation: 1, Completer: spy(func() {
			defer close(done)
			seen, busy = handle.Err(), h.w.Stats().BusyKeys
			_, again = h.w.PushPull(List(Floats(t, 1)), Keys(2), List(out), Keys(3))
		}),
	}))
	require.True(t, h.net.Kill("server 0"))
	requireLost(t, handle.Wait(Context(t)), "server 0")
	<-done
	requireLost(t, seen, "server 0")
	require.Zero(t, busy)
	requireLost(t, again, "server 0")
}

// A key stays busy while a live server has not answered, although its exchange has failed. The error names that
// server.
func TestKeysOfAFailedRequestThatALiveServerHas(t *testing.T) {
	c := New(t, anyReady(2, stepvan.Named))
	w := c.Workers[0]
	outs := List(Floats(t, 0), Floats(t, 0))
	h, err := w.Do(&worker.Exchange{
		Push: List(Floats(t, 1)), PushKeys: Keys(1), PushTo: []stepvan.Rank{0}, Pull: outs, PullKeys: Keys(2, 3), PullTo: []stepvan.Rank{0, 1},
	})
	require.NoError(t, err)
	req := batch(t, c.Servers[0])[0]
	require.True(t, c.Net.Kill("server 1"))
	requireLost(t, h.Wait(Context(t)), "server 1")
	next := &worker.Exchange{Push: List(Floats(t, 1)), PushKeys: Keys(1), PushTo: []stepvan.Rank{0}}
	_, err = w.Do(next)
	require.ErrorIs(t, err, stepvan.ErrBusy)
	require.ErrorContains(t, err, "server 0")
	require.ErrorContains(t, err, "key 1")
	answer(t, c.Servers[0], req.ID, Floats(t, 5))
	_, err = w.Do(next)
	require.NoError(t, err)
}
