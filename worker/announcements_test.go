package worker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/vantest/faults"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// host is a raw server of a worker, with memory that the worker may write.
type host struct {
	t       *testing.T
	w       *worker.Worker
	worker  *Peer         // the node of w
	dialled *link.Session // of w
	server  *Peer
	session *link.Session
	net     *faults.Network // of WithFaults
}

func newHost(t *testing.T, v Van, edit func(*link.Options)) *host {
	o := Options{Van: v, Link: edit}
	h := &host{t: t, net: v.Net, server: NewPeer(t, o, "server 0", 6)}
	node := NewPeer(t, o, "worker 0", 5)
	addr := h.server.Listen(t, v)
	h.worker = node
	h.w = worker.New(node.Transport, worker.Options{})
	s, err := node.Transport.Dial(Context(t), []string{addr})
	h.dialled = s
	require.NoError(t, err)
	require.NoError(t, h.w.Join(0, []worker.Server{{Rank: 0, Name: "server 0", Session: s}}))
	h.session = h.server.Session(t)
	return h
}

// lend announces fresh memory for keys, and waits until the worker knows.
func (h *host) lend(generation uint32, bytes int, keys ...tensor.Key) (mem map[tensor.Key][]byte, grants map[tensor.Key]link.Grant) {
	h.t.Helper()
	mem, grants = map[tensor.Key][]byte{}, map[tensor.Key]link.Grant{}
	var list []wire.Descriptor
	for _, k := range keys {
		d := wire.KeyOf(k, int64(bytes))
		if h.session.OneSided() {
			mem[k] = make([]byte, bytes)
			g, err := h.session.Grant(mem[k], generation, link.RightWrite)
			require.NoError(h.t, err)
			grants[k] = g
			d.Region, d.Generation = uint64(g.ID), g.Generation
		}
		list = append(list, d)
	}
	h.tell(wire.OpAnnounce, generation, list...)
	return mem, grants
}

// tell sends an announcement and waits until it is acknowledged.
func (h *host) tell(op uint8, generation uint32, list ...wire.Descriptor) {
	h.t.Helper()
	done := make(completion)
	require.NoError(h.t, h.session.Send(&link.Outbound{
		Channel: link.ChannelRegister, Op: op, Flags: wire.FlagAckNow, Generation: generation,
		Pushes: uint32(len(list)), Meta: keyOf(list...), Completer: done,
	}))
	require.NoError(h.t, <-done)
}

type completion chan error

func (c completion) Done(_ *link.Outbound, err error) { go func() { c <- err }() }

func bytesOf(t *testing.T, x ...float32) []byte {
	v := Floats(t, x...)
	return v.Bytes()
}

func (h *host) push(keys []tensor.Key, x ...tensor.Tensor) *link.Inbound {
	h.t.Helper()
	_, err := h.w.PushPull(x, keys, nil, nil)
	require.NoError(h.t, err)
	return h.server.Take(h.t)
}

// answer ends a request without pulls.
func (h *host) answer(m *link.Inbound) {
	h.t.Helper()
	done := make(completion)
	require.NoError(h.t, h.session.Send(&link.Outbound{Channel: link.ChannelResponse, Op: wire.OpResponse, Flags: wire.FlagAckNow, Request: m.Header.Request, Completer: done}))
	m.Release()
	require.NoError(h.t, <-done)
}

func TestPushesAreWrittenOnlyWhenAllOfThemHaveAChunk(t *testing.T) {
	h := newHost(t, OneSided(), nil)
	mem, grants := h.lend(3, 8, 1, 2)
	for name, c := range map[string]struct {
		keys    []tensor.Key
		x       []tensor.Tensor
		written bool
	}{
		"both":                       {Keys(1, 2), List(Floats(t, 1, 2), Floats(t, 3, 4)), true},
		"smaller":                    {Keys(2), List(Floats(t, 5)), true},
		"an empty one, no chunk":     {Keys(9, 1), List(Floats(t), Floats(t, 6)), true},
		"one without a chunk":        {Keys(1, 9), List(Floats(t, 7), Floats(t, 8)), false},
		"one that is too large":      {Keys(1, 2), List(Floats(t, 7), Floats(t, 8, 9, 10)), false},
		"nothing but an empty one":   {Keys(1), List(Floats(t)), false},
		"an empty one and one to go": {Keys(1, 9), List(Floats(t), Floats(t, 8)), false},
	} {
		clear(mem[1])
		clear(mem[2])
		m := h.push(c.keys, c.x...)
		require.Equal(t, c.written, m.Written > 0, name)
		require.EqualValues(t, 3, m.Header.Generation)
		var r wire.Request
		require.NoError(t, r.Decode(&m.Header, m.Meta))
		for i, d := range r.Pushes {
			switch g := grants[d.Key]; {
			case !c.written:
				require.Zero(t, d.Region, name)
			case d.Bytes > 0:
				require.Equal(t, g.ID, link.GrantID(d.Region), name)
				require.Equal(t, g.Generation, d.Generation)
				require.Equal(t, c.x[i].Bytes(), mem[d.Key][:d.Bytes], name)
			}
		}
		if !c.written {
			require.Equal(t, make([]byte, 8), mem[1], name)
		}
		h.answer(m)
	}
}

func TestWithdrawnChunksAreFenced(t *testing.T) {
	h := newHost(t, OneSided(), nil)
	mem, _ := h.lend(1, 4, 1, 2)
	h.tell(wire.OpWithdraw, 0, wire.KeyOf(1, 4)) // the first of two
	m := h.push(Keys(1), Floats(t, 5))
	require.Zero(t, m.Written)
	h.answer(m)
	h.tell(wire.OpWithdraw, 2, wire.KeyOf(7, 4))
	m = h.server.Take(t)
	require.Equal(t, wire.OpFence, m.Header.Op)
	require.EqualValues(t, 2, m.Header.Generation)
	require.NoError(t, wire.CheckFence(&m.Header))
	m.Release()
	m = h.push(Keys(2), Floats(t, 6))
	require.NotZero(t, m.Written, "its chunk was not withdrawn")
	require.EqualValues(t, 2, m.Header.Generation)
	h.answer(m)
	// Another chunk for a key replaces the first. A chunk whose grant is gone is not used.
	again, _ := h.lend(3, 4, 2)
	m = h.push(Keys(2), Floats(t, 7))
	require.NotZero(t, m.Written)
	require.Equal(t, bytesOf(t, 7), again[2])
	require.Equal(t, bytesOf(t, 6), mem[2])
	h.answer(m)
	over := make(chan struct{})
	more, grants := h.lend(4, 4, 1)
	h.session.Withdraw(grants[1].ID, func() { close(over) })
	<-over
	m = h.push(Keys(1), Floats(t, 8))
	require.Zero(t, m.Written)
	require.Equal(t, bytesOf(t, 8), m.Payload)
	require.Equal(t, make([]byte, 4), more[1])
	h.answer(m)
}

func TestNoFencesWhereNothingIsWritten(t *testing.T) {
	h := newHost(t, Mem(), nil)
	h.lend(1, 4, 1)
	h.tell(wire.OpWithdraw, 2, wire.KeyOf(1, 4))
	m := h.push(Keys(1), Floats(t, 5))
	require.Equal(t, wire.OpRequest, m.Header.Op, "the worker says nothing that a server of this van does not need")
	h.answer(m)
}

// A van that cannot write to the peer makes no use of the grant in an announcement.
func TestGrantsAreIgnoredOverVansThatCannotWrite(t *testing.T) {
	h := newHost(t, Mem(), nil)
	d := wire.KeyOf(1, 4)
	d.Region, d.Generation = 77, 1
	h.tell(wire.OpAnnounce, 1, d)
	m := h.push(Keys(1), Floats(t, 5))
	require.Zero(t, m.Written)
	h.answer(m)
}

func TestFencesOutliveAFullQueue(t *testing.T) {
	h := newHost(t, OneSided(), func(o *link.Options) { o.QueueMessages, o.CreditBytes = 3, 8 })
	h.lend(1, 4, 1)
	var got []*link.Inbound
	full := false
	for k := tensor.Key(10); !full; k++ {
		_, err := h.w.PushPull(List(Floats(t, 1)), Keys(k), nil, nil)
		full = err != nil
		require.Less(t, k, tensor.Key(100))
	}
	h.tell(wire.OpWithdraw, 2, wire.KeyOf(1, 4))
	for len(got) < 6 {
		m := h.server.Take(t)
		op := m.Header.Op
		got = append(got, m)
		m.Release() // gives the credit for the next one
		if op == wire.OpFence {
			return
		}
	}
	t.Fatal("the fence was never sent")
}
