package worker_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// startOfAnswer is the start of a response to request m. It has one pull, of key, with that many bytes.
func startOfAnswer(m *link.Inbound, session *link.Session, key tensor.Key, bytes int64) *link.Inbound {
	return &link.Inbound{
		Session: session, Meta: keyOf(wire.KeyOf(key, bytes)),
		Header: wire.Header{
			Kind: wire.KindData, Channel: link.ChannelBulk, Op: wire.OpResponse, Request: m.Header.Request,
			Pulls: 1, Payload: uint64(bytes), Total: uint64(bytes),
		},
	}
}

// A request may fail while its response is being received, and the session may break after that. What the response
// refers to must still be there when the link aborts it.
func TestAbortOfAResponse(t *testing.T) {
	for _, failed := range []bool{false, true} {
		a := newAborted(t, failed)
		a.responses.Abort(a.broken, stepvan.ErrPeerLost)
		a.requireOver(t)
		require.Zero(t, a.w.Stats().Outstanding)
	}
}

// By then other requests may use what the failed one has released, and their answers may be on the way.
func TestAbortOfAResponseIsNotThatOfAnother(t *testing.T) {
	for _, failed := range []bool{false, true} {
		a := newAborted(t, failed)
		next, err := a.worker.Memory.Zeros(tensor.Uint8, abortedBytes)
		require.NoError(t, err)
		other := a.pull(t, 1, next)
		whole := startOfAnswer(a.taken(t, a.second, a.second.Session(t)), a.toSecond, 1, abortedBytes)
		_, err = a.responses.Place(whole, nil)
		require.NoError(t, err)
		a.responses.Abort(a.broken, stepvan.ErrPeerLost)
		a.requireOver(t)
		require.ErrorIs(t, next.Region().Close(), stepvan.ErrBusy, "its answer is being read")
		worker.Lose(a.w, a.toSecond, stepvan.ErrPeerLost)
		require.False(t, other.Done(), "its answer is being read")
		a.responses.Abort(whole, stepvan.ErrPeerLost)
		requireLost(t, other.Wait(Context(t)), "server 1")
		require.NoError(t, next.Region().Close())
		require.Zero(t, a.w.Stats().Outstanding)
	}
}

// aborted is a worker that has lost server 0 in the middle of an answer, and still has server 1.
type aborted struct {
	*host
	second    *Peer
	toSecond  *link.Session
	responses link.Handler
	broken    *link.Inbound // the answer
	failed    bool          // the request had failed before the answer began
	handle    worker.Handle // of the request
	memory    tensor.Tensor // for its answer
}

const abortedBytes = 64

func newAborted(t *testing.T, failed bool) *aborted {
	v := Mem()
	a := &aborted{host: newHost(t, v, nil), second: NewPeer(t, Options{Van: v}, "server 1", 7), failed: failed}
	var err error
	a.toSecond, err = a.worker.Transport.Dial(Context(t), []string{a.second.Listen(t, v)})
	require.NoError(t, err)
	require.NoError(t, a.w.Join(0, []worker.Server{{Rank: 0, Name: "server 0", Session: a.dialled}, {Rank: 1, Name: "server 1", Session: a.toSecond}}))
	a.responses = worker.ResponsesOf(a.w)
	a.memory, err = a.worker.Memory.Zeros(tensor.Uint8, abortedBytes)
	require.NoError(t, err)

	a.handle = a.pull(t, 0, a.memory)
	a.broken = startOfAnswer(a.taken(t, a.server, a.session), a.dialled, 1, abortedBytes)
	if failed {
		cause := errors.New("the scheduler is gone")
		worker.FailRequests(a.w, cause)
		require.ErrorIs(t, a.handle.Wait(Context(t)), cause)
	}
	dst, err := a.responses.Place(a.broken, nil)
	require.NoError(t, err)
	require.Equal(t, failed, len(dst) == 0, "what answers a failed request is not written to its tensors")
	worker.Lose(a.w, a.dialled, stepvan.ErrPeerLost)
	return a
}

func (a *aborted) pull(t *testing.T, rank stepvan.Rank, x tensor.Tensor) worker.Handle {
	t.Helper()
	h, err := a.w.Do(&worker.Exchange{Routing: stepvan.Named, Pull: List(x), PullKeys: Keys(1), PullTo: []stepvan.Rank{rank}})
	require.NoError(t, err)
	return h
}

// taken is the request as p got it. The worker knows that p has received it.
func (a *aborted) taken(t *testing.T, p *Peer, session *link.Session) *link.Inbound {
	t.Helper()
	m := p.Take(t)
	done := make(completion, 1)
	require.NoError(t, session.Send(&link.Outbound{
		Channel: link.ChannelRegister, Op: wire.OpAnnounce, Generation: 1, Flags: wire.FlagAckNow, Completer: done,
	}))
	require.NoError(t, <-done)
	return m
}

// requireOver checks that the request to server 0 has failed and left nothing.
func (a *aborted) requireOver(t *testing.T) {
	t.Helper()
	err := a.handle.Wait(Context(t))
	require.Error(t, err)
	if !a.failed {
		requireLost(t, err, "server 0")
	}
	require.NoError(t, a.memory.Region().Close(), "nobody writes to it any more")
}
