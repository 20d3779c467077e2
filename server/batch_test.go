package server_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
)

// sources returns the ranks of a batch, and the first value that each has pushed.
func sources(t testing.TB, reqs []server.Request) (from []stepvan.Rank, first []float32) {
	for _, r := range reqs {
		from = append(from, r.Worker)
		first = append(first, Values(t, r.Pushes()[0])[0])
	}
	return from, first
}

func TestLockStepTakesOneOfEveryWorkerInItsOrder(t *testing.T) {
	c := New(t, Options{Workers: 3})
	s := c.Servers[0]
	for _, i := range []int{2, 0} {
		for n := range 2 {
			push(t, c.Workers[i], tensor.Key(10*n), float32(10*i+n))
		}
	}
	awaitRequests(t, s, 4)
	requireNoBatch(t, s, stepvan.LockStep)
	push(t, c.Workers[1], 0, 10)
	from, first := sources(t, take(t, s, stepvan.LockStep))
	require.Equal(t, ranks(0, 1, 2), from)
	require.Equal(t, []float32{0, 10, 20}, first)
	requireNoBatch(t, s, stepvan.LockStep)
	push(t, c.Workers[1], 10, 11)
	from, first = sources(t, take(t, s, stepvan.DefaultPolicy))
	require.Equal(t, ranks(0, 1, 2), from)
	require.Equal(t, []float32{1, 11, 21}, first)
}

func TestAnyReadyAndAtLeast(t *testing.T) {
	c := New(t, Options{Workers: 3, Server: server.Options{Policy: stepvan.AnyReady}})
	s := c.Servers[0]
	push(t, c.Workers[2], 0, 20)
	push(t, c.Workers[2], 10, 21)
	awaitRequests(t, s, 2)
	requireNoBatch(t, s, stepvan.AtLeast(2))
	from, first := sources(t, take(t, s, stepvan.DefaultPolicy))
	require.Equal(t, ranks(2), from)
	require.Equal(t, []float32{20}, first)
	push(t, c.Workers[0], 0, 0)
	from, _ = sources(t, take(t, s, stepvan.AtLeast(2)))
	require.Equal(t, ranks(0, 2), from)
	for _, p := range []stepvan.Policy{stepvan.AtLeast(4), -2} {
		_, err := s.GetBatch(Context(t), p)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
	}
}

func TestIdleIsNoErrorAndDeadlinesAre(t *testing.T) {
	c := New(t, Options{})
	s := c.Servers[0]
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := s.GetBatch(ctx, stepvan.DefaultPolicy)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Regexp(t, "^get_batch: requests of 0 of 1 workers are here: stepvan: wait: gave up after ", err.Error())
	var b server.Batch
	require.ErrorIs(t, s.GetBatchFor(time.Millisecond, stepvan.DefaultPolicy, &b), context.DeadlineExceeded)
	push(t, c.Workers[0], 1, 5)
	require.NoError(t, s.GetBatchFor(WaitLimit, stepvan.DefaultPolicy, &b), "and then it goes on")
	require.Len(t, b.Requests, 1)
	respond(t, s, b.Requests[0].ID, Floats(t, 1))
}

func TestOneCallerAtATime(t *testing.T) {
	c := New(t, Options{})
	s := c.Servers[0]
	ctx, cancel := context.WithCancel(Context(t))
	var wg sync.WaitGroup
	errors := make(chan error, 2)
	for range 2 {
		wg.Go(func() {
			_, err := s.GetBatch(ctx, stepvan.DefaultPolicy)
			errors <- err
		})
	}
	require.ErrorIs(t, <-errors, stepvan.ErrBusy)
	cancel()
	wg.Wait()
	require.ErrorIs(t, <-errors, context.Canceled)
}

func requireGone(t *testing.T, err error, name string) {
	t.Helper()
	var op *stepvan.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, name, op.Peer)
	require.Equal(t, "get_batch", op.Op)
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
}

func TestLostWorkerNeverHangsLockStep(t *testing.T) {
	c := New(t, Options{Van: WithFaults(Mem()), Workers: 2})
	s := c.Servers[0]
	h, out := push(t, c.Workers[0], 1, 5)
	awaitRequests(t, s, 1)
	require.True(t, c.Net.Kill("worker 1"))
	for range 2 { // it stays so
		_, err := s.GetBatch(Context(t), stepvan.LockStep)
		requireGone(t, err, "worker 1")
		require.NotErrorIs(t, err, stepvan.ErrClosed)
	}
	_, err := s.GetBatch(Context(t), stepvan.AtLeast(2))
	requireGone(t, err, "worker 1")
	reqs := take(t, s, stepvan.AnyReady)
	respond(t, s, reqs[0].ID, Floats(t, 6))
	require.NoError(t, h.Wait(Context(t)))
	require.Equal(t, []float32{6}, Values(t, out))

	require.True(t, c.Net.Kill("worker 0"))
	_, err = s.GetBatch(Context(t), stepvan.AnyReady)
	require.NotErrorIs(t, err, stepvan.ErrClosed, "a death is no orderly end")
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
	require.ErrorContains(t, err, "worker 0")
}

func TestWorkersThatLeave(t *testing.T) {
	c := New(t, Options{Workers: 2})
	s := c.Servers[0]
	h, err := c.Workers[0].PushPull(List(Floats(t, 7)), Keys(1), nil, nil)
	require.NoError(t, err)
	require.NoError(t, c.Workers[0].Transport.Close())
	require.ErrorIs(t, h.Wait(Context(t)), stepvan.ErrClosed)

	push(t, c.Workers[1], 1, 8)
	reqs := take(t, s, stepvan.LockStep)
	from, first := sources(t, reqs)
	require.Equal(t, ranks(0, 1), from, "what was accepted is handed out")
	require.Equal(t, []float32{7, 8}, first)
	respond(t, s, reqs[0].ID)              // which has no effect, and succeeds
	requireNoBatch(t, s, stepvan.LockStep) // worker 1 may leave as well: no error yet

	push(t, c.Workers[1], 11, 9)
	_, err = s.GetBatch(Context(t), stepvan.LockStep)
	requireGone(t, err, "worker 0")
	require.ErrorIs(t, err, link.ErrLeft)
	require.Len(t, take(t, s, stepvan.AnyReady), 1)

	require.NoError(t, c.Workers[1].Transport.Close())
	_, err = s.GetBatch(Context(t), stepvan.LockStep)
	require.ErrorIs(t, err, stepvan.ErrClosed)
	require.ErrorIs(t, err, net.ErrClosed)
	require.EqualError(t, err, "get_batch: every paired worker is gone, so no request will follow")
}

func TestRespondToAWorkerThatIsGone(t *testing.T) {
	c := New(t, Options{Van: WithFaults(Mem()), Workers: 2})
	s := c.Servers[0]
	h, out := push(t, c.Workers[0], 1, 5)
	push(t, c.Workers[1], 1, 5)
	reqs := take(t, s, stepvan.LockStep)
	require.True(t, c.Net.Kill("worker 1"))
	_, err := s.GetBatch(Context(t), stepvan.LockStep)
	requireGone(t, err, "worker 1")
	ret := Floats(t, 1, 2)
	r, err := s.RespondVec(ret, List(Floats(t, 0), Floats(t, 0)), []server.RequestID{reqs[0].ID, reqs[1].ID})
	require.NoError(t, err)
	require.NoError(t, h.Wait(Context(t)), "the others are answered")
	require.Equal(t, []float32{1}, Values(t, out))
	err = r.Wait(Context(t))
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
	require.ErrorContains(t, err, "respond with worker 1")
	require.Zero(t, s.Stats().Unanswered)
}
