package server_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/errs"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/link"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

func fewMessages(o *link.Options) { o.QueueMessages = 3 }

// until repeats call while the queue is full.
func until(t *testing.T, w *Worker, call func() error) {
	t.Helper()
	for {
		err := call()
		if err == nil {
			return
		}
		require.ErrorIs(t, err, errs.ErrWouldBlock)
	}
}

func TestRespondToAFullQueueHasNoEffect(t *testing.T) {
	c := New(t, Options{Link: fewMessages})
	w, s := c.Workers[0], c.Servers[0]
	const n = 500
	var handles []worker.Handle
	var reqs []server.Request
	for range n {
		out := Floats(t, 0)
		until(t, w, func() error {
			h, err := w.PushPull(nil, nil, List(out), Keys(1))
			if err == nil {
				handles = append(handles, h)
			}
			return err
		})
		reqs = append(reqs, take(t, s, server.Default)...)
	}
	require.True(t, c.Net.Stall("worker 0"))
	full := false
	back := List(Floats(t, 1))
	answered := 0
	for ; answered < n && !full; answered++ {
		_, err := s.Respond(back, reqs[answered].Handler)
		if full = errors.Is(err, errs.ErrWouldBlock); full {
			require.Equal(t, n-answered, s.Stats().Unanswered)
			require.Len(t, reqs[answered].Pulls(), 1, "still to be answered")
			break
		}
		require.NoError(t, err)
	}
	require.True(t, full)
	require.True(t, c.Net.Resume("worker 0"))
	go func() { // drives the worker
		for _, h := range handles {
			_ = h.WaitFor(Bound)
		}
	}()
	for _, r := range reqs[answered:] {
		until(t, w, func() error {
			_, err := s.Respond(back, r.Handler)
			return err
		})
	}
	for _, h := range handles {
		require.NoError(t, h.Wait(Context(t)))
	}
}

func TestRefusalsSurviveAFullQueue(t *testing.T) {
	c := New(t, Options{Link: fewMessages, Server: server.Options{PoolLimit: 1}})
	w, s := c.Workers[0], c.Servers[0]
	require.True(t, c.Net.Stall("server 0"))
	var handles []worker.Handle
	for k := range 200 {
		out := Floats(t, 0)
		h, err := w.PushPull(List(Floats(t, 1, 2)), Keys(10*tensor.Key(k)), List(out), Keys(10*tensor.Key(k)+1))
		if err != nil {
			require.ErrorIs(t, err, errs.ErrWouldBlock)
			break
		}
		handles = append(handles, h)
	}
	require.Greater(t, len(handles), 4)
	require.True(t, c.Net.Stall("worker 0"))
	require.True(t, c.Net.Resume("server 0"))
	idle(t, s, server.AnyReady) // drives the server
	require.True(t, c.Net.Resume("worker 0"))
	go func() { // drives the server
		_, _ = s.GetBatch(Context(t), server.AnyReady)
	}()
	for _, h := range handles {
		require.ErrorIs(t, h.Wait(Context(t)), errs.ErrRemote)
	}
	require.NoError(t, s.Server.Close())
	require.Zero(t, s.Stats().Unanswered)
}

func TestFailEndsGetBatch(t *testing.T) {
	c := New(t, Options{})
	s := c.Servers[0]
	require.Equal(t, 1, s.Workers())
	require.Zero(t, s.Rank())
	cause := errors.New("the scheduler is gone")
	s.Fail(cause)
	_, err := s.GetBatch(Context(t), server.Default)
	require.ErrorIs(t, err, cause)
}
