package server_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van/memvan"
	"github.com/stepvan/stepvan/worker"
)

func fewMessages(o *link.Options) { o.QueueMessages = 3 }

// retryWhileFull repeats call while the queue is full.
func retryWhileFull(t *testing.T, call func() error) {
	t.Helper()
	for {
		err := call()
		if err == nil {
			return
		}
		require.ErrorIs(t, err, stepvan.ErrWouldBlock)
	}
}

func TestRespondToAFullQueueHasNoEffect(t *testing.T) {
	c := New(t, Options{Van: WithFaults(Mem()), Link: fewMessages})
	w, s := c.Workers[0], c.Servers[0]
	const n = 500
	var handles []worker.Handle
	var reqs []server.Request
	for range n {
		out := Floats(t, 0)
		retryWhileFull(t, func() error {
			h, err := w.PushPull(nil, nil, List(out), Keys(1))
			if err == nil {
				handles = append(handles, h)
			}
			return err
		})
		reqs = append(reqs, take(t, s, stepvan.DefaultPolicy)...)
	}
	require.True(t, c.Net.Stall("worker 0"))
	full := false
	back := List(Floats(t, 1))
	answered := 0
	for ; answered < n && !full; answered++ {
		_, err := s.Respond(back, reqs[answered].ID)
		if full = errors.Is(err, stepvan.ErrWouldBlock); full {
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
			_ = h.WaitFor(WaitLimit)
		}
	}()
	for _, r := range reqs[answered:] {
		retryWhileFull(t, func() error {
			_, err := s.Respond(back, r.ID)
			return err
		})
	}
	for _, h := range handles {
		require.NoError(t, h.Wait(Context(t)))
	}
}

// A program tries again and again while the queue is full.
func TestRespondToAFullQueueCopiesNothing(t *testing.T) {
	for name, reached := range map[string]bool{"to pooled memory": false, "to the pull tensors": true} {
		t.Run(name, func(t *testing.T) {
			const n, floats = 40, 80_000
			c := New(t, Options{Van: WithFaults(MemVan("one-sided", memvan.Options{OneSided: true, Queue: 16})), Link: fewMessages})
			w, s := c.Workers[0], c.Servers[0]
			var handles []worker.Handle
			var pulls []tensor.Tensor
			var reqs []server.Request
			for range n {
				pull := Floats(t, make([]float32, floats)...)
				if reached {
					pull = shared(t, w.Instance, 0, floats)
				}
				retryWhileFull(t, func() error {
					h, err := w.PushPull(nil, nil, List(pull), Keys(1))
					if err == nil {
						handles, pulls = append(handles, h), append(pulls, pull)
					}
					return err
				})
				reqs = append(reqs, take(t, s, stepvan.DefaultPolicy)...)
			}
			answer := Floats(t, make([]float32, floats)...)
			fill(t, answer, 7)
			require.True(t, c.Net.Stall("worker 0"))
			answered := 0
			for err := error(nil); err == nil; {
				if _, err = s.Respond(List(answer), reqs[answered].ID); err == nil {
					answered++
					continue
				}
				require.ErrorIs(t, err, stepvan.ErrWouldBlock)
			}
			copies := s.Memory.Stats().Gets
			for range 10 {
				_, err := s.Respond(List(answer), reqs[answered].ID)
				require.ErrorIs(t, err, stepvan.ErrWouldBlock)
			}
			require.Equal(t, copies, s.Memory.Stats().Gets)
			requireFilled(t, 0, pulls[answered], "the pull that is not answered")
			require.True(t, c.Net.Resume("worker 0"))
			for i, h := range handles {
				if i >= answered {
					retryWhileFull(t, func() error {
						_, err := s.Respond(List(answer), reqs[i].ID)
						return err
					})
				}
				require.NoError(t, h.Wait(Context(t)))
				requireFilled(t, 7, pulls[i], "answer")
			}
		})
	}
}

func TestRefusalsSurviveAFullQueue(t *testing.T) {
	v := Mem()
	o := Options{Van: v, Server: server.Options{PoolLimit: 1}, Link: func(o *link.Options) { o.QueueMessages, o.CreditBytes = 3, 4 }}
	c := New(t, o)
	s := c.Servers[0]
	raw := c.Replace(t, o, "raw") // in place of worker 0; gives no credit before it takes the messages
	session := raw.Dial(t, s)
	send := func(id uint64, pushes, pulls uint32, payload ...[]byte) {
		d := float(1)
		require.NoError(t, session.Send(&link.Outbound{
			Channel: link.ChannelRequest, Op: wire.OpRequest, Request: id,
			Pushes: pushes, Pulls: pulls, Meta: d.Append(nil), Payload: payload,
		}))
	}
	full, answered := false, 0
	for !full {
		send(uint64(answered), 0, 1)
		req := take(t, s, stepvan.AnyReady)[0]
		_, err := s.Respond(List(Floats(t, 1)), req.ID)
		if full = errors.Is(err, stepvan.ErrWouldBlock); !full {
			require.NoError(t, err)
			answered++
		}
	}
	send(1000, 1, 0, make([]byte, 4)) // is refused
	send(1001, 0, 1)
	take(t, s, stepvan.AnyReady) // the refusal waits for room by then
	for range answered {
		m := raw.Take(t)
		require.Zero(t, m.Header.Flags&wire.FlagError)
		m.Release()
	}
	m := raw.Take(t)
	require.NotZero(t, m.Header.Flags&wire.FlagError)
	require.EqualValues(t, 1000, m.Header.Request)
	m.Release()
}

func TestWhatFailsIsAboutThePeerOfTheCause(t *testing.T) {
	s := New(t, Options{}).Servers[0]
	s.Fail(&stepvan.OpError{Op: "cluster", Peer: "worker 7", Err: stepvan.ErrPeerLost})
	_, err := s.GetBatch(Context(t), stepvan.DefaultPolicy)
	require.Equal(t, &stepvan.OpError{Op: "get_batch", Peer: "worker 7", Err: stepvan.ErrPeerLost}, err)
}

func TestFailEndsGetBatch(t *testing.T) {
	c := New(t, Options{})
	s := c.Servers[0]
	require.Equal(t, 1, s.Workers())
	require.Zero(t, s.Rank())
	cause := errors.New("the scheduler is gone")
	s.Fail(cause)
	_, err := s.GetBatch(Context(t), stepvan.DefaultPolicy)
	require.ErrorIs(t, err, cause)
}
