package worker_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// use is a request to a server that lives.
type use struct {
	push, pull []tensor.Tensor
	refused    bool
}

// uses are all ways to use memory that a failed exchange has pushed and pulled into.
func uses(t *testing.T, push, pull, other tensor.Tensor) map[string]use {
	t.Helper()
	half, err := pull.Slice(many/2, many)
	require.NoError(t, err)
	return map[string]use{
		"pulled into again":           {nil, List(pull), true},
		"a part of it pulled into":    {nil, List(other, half), true},
		"pushed what is written to":   {List(other, pull), nil, true},
		"pulled into what is read":    {nil, List(push), true},
		"pushed again":                {List(push), nil, false},
		"neither":                     {List(other), nil, false},
		"pulled into something else":  {nil, List(other), false},
		"pushed again, pulled others": {List(push), List(other), false},
	}
}

// try makes every use with server rank, which takes what arrives and answers nothing.
func try(t *testing.T, w *worker.Worker, rank stepvan.Rank, p *Peer, all map[string]use, refusal func(error)) {
	t.Helper()
	key := tensor.Key(1000)
	for name, u := range all {
		r := worker.Exchange{Routing: stepvan.Named, PushTo: []stepvan.Rank{rank}, PullTo: []stepvan.Rank{rank}, Push: u.push, Pull: u.pull}
		for range u.push {
			key++
			r.PushKeys = append(r.PushKeys, key)
		}
		for range u.pull {
			key++
			r.PullKeys = append(r.PullKeys, key)
		}
		_, err := w.Do(&r)
		if !u.refused {
			require.NoError(t, err, name)
			p.Take(t).Release()
			continue
		}
		require.ErrorIs(t, err, stepvan.ErrBusy, name)
		refusal(err)
	}
}

// pair is a worker with two raw servers.
func pair(t *testing.T) (h *host, second *Peer) {
	v := WithFaults(OneSided())
	h = newHost(t, v, nil)
	second = NewPeer(t, Options{Van: v}, "server 1", 7)
	s, err := h.worker.Transport.Dial(Context(t), []string{second.Listen(t, v)})
	require.NoError(t, err)
	require.NoError(t, h.w.Join(0, []worker.Server{{Rank: 0, Name: "server 0", Session: h.dialled}, {Rank: 1, Name: "server 1", Session: s}}))
	return h, second
}

// An exchange fails with one server. The other server lives, has not answered, and may still do all of its request.
func TestMemoryThatALiveServerStillHas(t *testing.T) {
	h, _ := pair(t)
	push, pull, other := shared(t, h.node(), many), shared(t, h.node(), many), shared(t, h.node(), many)
	defer h.net.Kill("server 0")
	handle, err := h.w.PushPull(List(push), Keys(1), List(pull, Floats(t, 0)), Keys(2, 3))
	require.NoError(t, err)
	m := h.server.Take(t)
	require.True(t, h.net.Kill("server 1"))
	requireLost(t, handle.Wait(Context(t)), "server 1")

	try(t, h.w, 0, h.server, uses(t, push, pull, other), func(err error) {
		require.ErrorContains(t, err, "server 0")
		require.ErrorContains(t, err, "try again when the server has answered")
	})
	require.ErrorIs(t, pull.Region().Close(), stepvan.ErrBusy)

	a := wire.KeyOf(2, 4*many)
	a.Flags = wire.DescInPlace
	done := make(completion)
	require.NoError(t, h.session.Send(&link.Outbound{
		Channel: link.ChannelResponse, Op: wire.OpResponse, Flags: wire.FlagAckNow, Request: m.Header.Request, Pulls: 1, Meta: keyOf(a), Completer: done,
	}))
	m.Release()
	require.NoError(t, <-done)
	again := &worker.Exchange{Routing: stepvan.Named, Pull: List(pull, push), PullKeys: Keys(8, 9), PullTo: []stepvan.Rank{0}}
	_, err = h.w.Do(again)
	require.NoError(t, err, "it has answered")
	h.server.Take(t).Release()
}

// A server that the worker has lost lives, and keeps its view of the memory of the worker.
func TestMemoryThatAServerKeepsThatWasLost(t *testing.T) {
	h, second := pair(t)
	push, pull, other := shared(t, h.node(), many), shared(t, h.node(), many), shared(t, h.node(), many)
	defer h.net.Kill("server 1")
	handle, err := h.w.Do(&worker.Exchange{
		Routing: stepvan.Named, Push: List(push), PushKeys: Keys(1), PushTo: []stepvan.Rank{0}, Pull: List(pull), PullKeys: Keys(2), PullTo: []stepvan.Rank{0},
	})
	require.NoError(t, err)
	m := h.server.Take(t)
	d := requestOf(t, m).Pulls[0]
	v, err := h.session.Map(link.TargetOf(&d), int64(d.Bytes), link.RightWrite)
	require.NoError(t, err)
	require.NoError(t, h.session.Close("given up"))
	requireLost(t, handle.Wait(Context(t)), "server 0")

	try(t, h.w, 1, second, uses(t, push, pull, other), func(err error) {
		require.ErrorContains(t, err, "server 0")
		require.ErrorContains(t, err, "released the memory or ended")
	})
	v.Release()
	again := &worker.Exchange{Routing: stepvan.Named, Pull: List(pull, push), PullKeys: Keys(8, 9), PullTo: []stepvan.Rank{1}}
	for ctx := Context(t); ; runtime.Gosched() { // nothing tells when a lost server has released memory
		if _, err = h.w.Do(again); err == nil {
			break
		}
		require.ErrorIs(t, err, stepvan.ErrBusy)
		require.NoError(t, ctx.Err())
	}
	second.Take(t).Release()
	m.Release()
}

// plugBytes is the credit of a server, which plug uses up.
const plugBytes = 4096

// plug has the server keep all the payload that its credit allows. What follows stays in the link of the worker until
// unplug.
func (h *host) plug() (unplug func()) {
	h.t.Helper()
	half := Floats(h.t, make([]float32, plugBytes/4/2)...) // no message takes more of the credit
	a, b := h.push(Keys(1000), half), h.push(Keys(1001), half)
	return func() {
		a.Release()
		b.Release()
	}
}

// What is on the way to a live server must not change: the link reads it until the server has it.
func TestMemoryThatIsStillOnItsWay(t *testing.T) {
	v := WithFaults(Mem())
	h := newHost(t, v, func(o *link.Options) { o.CreditBytes = plugBytes })
	unplug := h.plug()
	second := NewPeer(t, Options{Van: v}, "server 1", 7)
	s, err := h.worker.Transport.Dial(Context(t), []string{second.Listen(t, v)})
	require.NoError(t, err)
	require.NoError(t, h.w.Join(0, []worker.Server{{Rank: 0, Name: "server 0", Session: h.dialled}, {Rank: 1, Name: "server 1", Session: s}}))
	to0 := []stepvan.Rank{0}

	push, pull := Floats(t, 1), List(Floats(t, 0), Floats(t, 0))
	handle, err := h.w.PushPull(List(push), Keys(1), pull, Keys(2, 3))
	require.NoError(t, err)
	second.Take(t).Release()
	require.True(t, h.net.Kill("server 1"))
	requireLost(t, handle.Wait(Context(t)), "server 1")
	_, err = h.w.Do(&worker.Exchange{Routing: stepvan.Named, Pull: List(push), PullKeys: Keys(5), PullTo: to0})
	require.ErrorIs(t, err, stepvan.ErrBusy)
	require.ErrorContains(t, err, "received")
	_, err = h.w.Do(&worker.Exchange{Routing: stepvan.Named, Push: List(push), PushKeys: Keys(6), PushTo: to0, Pull: pull, PullKeys: Keys(7, 8), PullTo: to0})
	require.NoError(t, err, "it is read only, and nobody writes to what was not lent")
	unplug()
	h.server.Take(t).Release()
	h.server.Take(t).Release()
}
