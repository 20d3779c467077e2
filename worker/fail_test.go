package worker_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/tensor"
)

func TestFailEndsEverything(t *testing.T) {
	c := New(t, Options{Servers: 2})
	w := c.Workers[0]
	h, err := w.PushPull(List(Floats(t, 1)), Keys(1), nil, nil)
	require.NoError(t, err)
	for _, s := range c.Servers {
		answer(t, s, batch(t, s)[0].ID)
	}
	require.NoError(t, h.Wait(Context(t)))
	g, err := w.PushPull(nil, nil, List(Floats(t, 0), Floats(t, 0)), Keys(2, 3))
	require.NoError(t, err)
	cause := errors.New("the scheduler is gone")
	w.Fail(cause)
	require.ErrorIs(t, g.Wait(Context(t)), cause)
	require.NoError(t, h.Wait(Context(t)), "it had completed")
	_, err = w.PushPull(nil, nil, List(Floats(t, 0), Floats(t, 0)), Keys(2, 3))
	require.ErrorIs(t, err, cause)
	for i, s := range c.Servers { // an answer that comes late costs no connection
		r, err := s.Respond(List(Floats(t, 1)), batch(t, s)[0].ID)
		require.NoError(t, err)
		require.NoError(t, r.Wait(Context(t)), "server %d", i)
	}
	require.Eventually(t, func() bool { return w.Stats().BusyKeys == 0 && w.Stats().Outstanding == 0 }, WaitLimit, 1)
}

func TestWhatFailsIsAboutThePeerOfTheCause(t *testing.T) {
	w := New(t, Options{}).Workers[0]
	w.Fail(&stepvan.OpError{Op: "cluster", Peer: "worker 7", Err: stepvan.ErrPeerLost})
	_, err := w.PushPull(List(Floats(t, 1)), Keys(1), nil, nil)
	require.Equal(t, &stepvan.OpError{Op: "push_pull", Peer: "worker 7", Err: stepvan.ErrPeerLost}, err)
}

// While the link receives a response, the memory of the response belongs to the link.
func TestFailWhileAResponseIsBeingRead(t *testing.T) {
	c := New(t, Options{Link: func(o *link.Options) { o.PieceBytes = 4096 }})
	w, s := c.Workers[0], c.Servers[0]
	const n = 8 << 20
	out, err := w.Memory.Zeros(tensor.Uint8, n)
	require.NoError(t, err)
	back, err := s.Memory.Zeros(tensor.Uint8, n)
	require.NoError(t, err)
	h, err := w.PushPull(nil, nil, List(out), Keys(1))
	require.NoError(t, err)
	req := batch(t, s)[0]
	r, err := s.Respond(List(back), req.ID)
	require.NoError(t, err)
	cause := errors.New("the scheduler is gone")
	w.Fail(cause)
	if err := h.Wait(Context(t)); err != nil {
		require.ErrorIs(t, err, cause)
	}
	require.NoError(t, r.Wait(Context(t)), "received and dropped")
	require.Eventually(t, func() bool { return w.Stats().Outstanding == 0 }, WaitLimit, 1)
	require.NoError(t, out.Region().Close())
	require.NoError(t, back.Region().Close())
}

func TestKeyIsFreeWhenTheServerOfADeliveredPushIsLost(t *testing.T) {
	c := New(t, Options{Van: WithFaults(Mem())})
	w := c.Workers[0]
	h, err := w.PushPull(List(Floats(t, 1)), Keys(1), nil, nil)
	require.NoError(t, err)
	req := batch(t, c.Servers[0])[0]
	require.Equal(t, 1, w.Stats().BusyKeys)
	require.True(t, c.Net.Kill("server 0"))
	requireLost(t, h.Wait(Context(t)), "server 0")
	require.Zero(t, w.Stats().BusyKeys)
	_, err = w.PushPull(List(Floats(t, 1)), Keys(1), nil, nil)
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
	_, err = c.Servers[0].Respond(nil, req.ID)
	require.NoError(t, err)
}
