package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
)

// The session of a live worker is lost while the server works in its memory. The handle fails at once, and the tensors
// stay reserved until the server has answered.
func TestTensorsStayLentToALostServer(t *testing.T) {
	c := New(t, Options{Van: WithFaults(OneSided())})
	w, s := c.Workers[0], c.Servers[0]
	push, pull := shared(t, w.Instance, 4, many), shared(t, w.Instance, 0, many)
	h, err := w.PushPull(List(push), Keys(1), List(pull), Keys(2))
	require.NoError(t, err)
	r := take(t, s, stepvan.DefaultPolicy)[0]
	x, y := in(t, r, 0), out(t, r, 0)
	require.Equal(t, 1, c.Net.Cut("worker 0", "server 0"))
	require.ErrorIs(t, h.Wait(Context(t)), stepvan.ErrPeerLost)
	require.Zero(t, w.Stats().BusyKeys, "the keys are free")
	require.ErrorIs(t, push.Region().Close(), stepvan.ErrBusy)
	require.ErrorIs(t, pull.Region().Close(), stepvan.ErrBusy)
	require.Equal(t, float32(4), Values(t, x)[many-1])
	Values(t, y)[0] = 5
	require.Equal(t, float32(5), Values(t, pull)[0], "it is the worker's memory still")
	_, err = s.Respond(List(y), r.ID)
	require.NoError(t, err)
	Free(t, push)
	Free(t, pull)
}

func TestMemoryOfADeadWorkerStaysUntilTheRespond(t *testing.T) {
	c := New(t, Options{Van: WithFaults(OneSided())})
	w, s := c.Workers[0], c.Servers[0]
	push, pull := shared(t, w.Instance, 4, many), shared(t, w.Instance, 0, many)
	_, err := w.PushPull(List(push), Keys(1), List(pull), Keys(2))
	require.NoError(t, err)
	r := take(t, s, stepvan.DefaultPolicy)[0]
	x := in(t, r, 0)
	require.True(t, c.Net.Kill("worker 0"))
	_, err = s.GetBatch(Context(t), stepvan.LockStep)
	requireGone(t, err, "worker 0")
	require.Equal(t, float32(4), Values(t, x)[many-1])
	y, err := r.Out(0)
	require.NoError(t, err, "memory of its own where the worker's is gone")
	Values(t, y)[0] = 5
	_, err = s.Respond(List(y), r.ID)
	require.NoError(t, err)
	require.Nil(t, x.Bytes())
}

// An exchange fails with one of its servers. Its tensors stay reserved until the other one has answered too.
func TestTensorsStayLentToTheOtherServer(t *testing.T) {
	c := New(t, Options{Servers: 2, Van: WithFaults(OneSided())})
	w, s := c.Workers[0], c.Servers[0]
	push, pull := shared(t, w.Instance, 4, many), List(shared(t, w.Instance, 0, many), shared(t, w.Instance, 0, many))
	h, err := w.PushPull(List(push), Keys(1), pull, Keys(2, 2))
	require.NoError(t, err)
	r := take(t, s, stepvan.DefaultPolicy)[0]
	y := out(t, r, 0)
	require.True(t, c.Net.Kill("server 1"))
	require.ErrorIs(t, h.Wait(Context(t)), stepvan.ErrPeerLost)
	require.ErrorIs(t, push.Region().Close(), stepvan.ErrBusy)
	require.Equal(t, float32(4), Values(t, in(t, r, 0))[0])
	respond(t, s, r.ID, y)
	Free(t, push)
}
