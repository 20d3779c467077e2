package ps_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// A push without pulls ends with the server's answer, also when that is its Stop.
func TestStopAnswersPushesThatWereTaken(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{workers: 1, servers: 1})
			s, w := c.servers[0], c.workers[0]
			h, err := w.PushPull([]tensor.Tensor{filled(t, w, 64, 1)}, []tensor.Key{1}, nil, nil)
			require.NoError(t, err)
			b, err := s.GetBatch(limited(t), ps.LockStep)
			require.NoError(t, err)
			require.False(t, h.Done())
			stopped := make(chan error, 1)
			go func() { stopped <- s.Stop(limited(t)) }()
			require.NoError(t, h.Wait(limited(t)))
			c.stop()
			require.NoError(t, <-stopped)
			_, err = s.Respond(nil, b.Requests[0].ID)
			require.ErrorIs(t, err, stepvan.ErrClosed)
		})
	}
}

// A worker that stops does not wait for answers to what it only pushed: that is delivered, and its handle ends.
func TestWorkerStopsWithUnansweredPushes(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{workers: 1, servers: 1})
			s, w := c.servers[0], c.workers[0]
			x := filled(t, w, 64, 1)
			h, err := w.PushPull([]tensor.Tensor{x}, []tensor.Key{1}, nil, nil)
			require.NoError(t, err)
			stopped := make(chan error, 1)
			go func() { stopped <- w.Stop(limited(t)) }()
			require.ErrorIs(t, h.Wait(limited(t)), stepvan.ErrClosed)
			b, err := s.GetBatch(limited(t), ps.LockStep)
			require.NoError(t, err)
			require.Equal(t, x.Bytes(), b.Requests[0].Pushes()[0].Bytes())
			r, err := s.Respond(nil, b.Requests[0].ID)
			require.NoError(t, err)
			require.NoError(t, r.Wait(limited(t)), "it has no effect, and succeeds")
			_, err = s.GetBatch(limited(t), ps.LockStep)
			require.ErrorIs(t, err, stepvan.ErrClosed)
			c.stop()
			require.NoError(t, <-stopped)
		})
	}
}

// A server that stops while a worker waits for it does not wait for that worker in turn.
func TestServerStopsWithPushesThatNobodyTook(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{workers: 1, servers: 1})
			s, w := c.servers[0], c.workers[0]
			h, err := w.PushPull([]tensor.Tensor{filled(t, w, 64, 1)}, []tensor.Key{1}, nil, nil)
			require.NoError(t, err)
			stopped := make(chan error, 1)
			go func() { stopped <- s.Stop(limited(t)) }()
			err = h.Wait(limited(t))
			require.ErrorIs(t, err, stepvan.ErrRemote)
			require.ErrorContains(t, err, "has stopped")
			c.stop()
			require.NoError(t, <-stopped)
		})
	}
}
