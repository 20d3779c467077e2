package memvan

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// pool places every payload at the start of one buffer.
type pool []byte

func (p pool) Place(_ van.Endpoint, h *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	if h.Payload > uint64(len(p)) {
		return dst, errs.Invalid("no room")
	}
	return append(dst, p[:h.Payload]), nil
}

func newVan(t testing.TB, net *Network, opt Options) van.Van {
	t.Helper()
	if opt.Placer == nil {
		opt.Placer = make(pool, 1<<16)
	}
	v, err := New(net, opt)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	return v
}

// link connects two vans of net.
func connect(t testing.TB, from, to van.Van) (out, in van.Endpoint) {
	t.Helper()
	addr, err := to.Listen("")
	require.NoError(t, err)
	out, err = from.Dial(context.Background(), addr)
	require.NoError(t, err)
	var ev [1]van.Event
	require.Equal(t, 1, to.Poll(ev[:], true))
	require.Equal(t, van.EventAccepted, ev[0].Kind)
	return out, ev[0].Endpoint
}

func message(op van.OpID, meta string, payload ...[]byte) *van.Message {
	h := wire.Header{Kind: wire.KindData, Sequence: uint64(op), Payload: uint64(total(payload))}
	h.Total = h.Payload
	head := append(make([]byte, wire.HeaderSize), meta...)
	h.Encode(head, head[wire.HeaderSize:])
	return &van.Message{Op: op, Head: head, Payload: payload}
}

// drain polls v once and returns what it found.
func drain(v van.Van) []van.Event {
	events := make([]van.Event, 1024)
	return events[:v.Poll(events, true)]
}

func kinds(events []van.Event) (s string) {
	for _, e := range events {
		s += string(" MCAL"[e.Kind])
	}
	return s
}

func TestCloseDeliversWhatNeedsNoSource(t *testing.T) {
	net := NewNetwork()
	a, b := newVan(t, net, Options{}), newVan(t, net, Options{})
	out, _ := connect(t, a, b)
	require.NoError(t, out.Send(message(1, "goodbye")))
	require.NoError(t, out.Send(message(2, "", []byte("payload"))))
	require.NoError(t, out.Send(message(3, "never passes 2")))
	require.NoError(t, out.Close())
	require.ErrorIs(t, out.Send(message(4, "")), stepvan.ErrClosed)
	done := drain(a)
	require.Equal(t, "CCC", kinds(done))
	require.NoError(t, done[0].Err)
	require.ErrorIs(t, done[1].Err, stepvan.ErrClosed)
	require.ErrorIs(t, done[2].Err, stepvan.ErrClosed)
	got := drain(b)
	require.Equal(t, "ML", kinds(got))
	require.Equal(t, "goodbye", string(got[0].Delivery.Meta))
	require.ErrorIs(t, got[1].Err, stepvan.ErrPeerLost)
	require.ErrorIs(t, got[0].Endpoint.Send(message(5, "")), stepvan.ErrPeerLost)
}

func TestCloseFreesNameAndAddress(t *testing.T) {
	net := NewNetwork()
	a, b := newVan(t, net, Options{Name: "a"}), newVan(t, net, Options{Name: "b"})
	_, err := New(net, Options{Name: "b", Placer: pool{}})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	addr, err := b.Listen("b:1")
	require.NoError(t, err)
	_, err = a.Listen("b:1")
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	out, err := a.Dial(context.Background(), addr)
	require.NoError(t, err)
	require.NoError(t, out.Send(message(1, "", []byte("x"))))
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	require.Equal(t, "CL", kinds(drain(a)))
	require.Empty(t, drain(b), "the acceptance died with the van")
	reborn := newVan(t, net, Options{Name: "b"})
	_, err = reborn.Listen("b:1")
	require.NoError(t, err)
	_, err = a.Dial(context.Background(), addr)
	require.NoError(t, err)
}

func TestPollCostsActiveEndpointsOnly(t *testing.T) {
	const n = 1000
	net := NewNetwork()
	hub := newVan(t, net, Options{Name: "hub"})
	addr, err := hub.Listen("hub")
	require.NoError(t, err)
	eps := make([]van.Endpoint, n)
	vans := make([]van.Van, n)
	for i := range eps {
		vans[i] = newVan(t, net, Options{})
		eps[i], err = vans[i].Dial(context.Background(), addr)
		require.NoError(t, err)
	}
	require.Len(t, drain(hub), n)
	require.NoError(t, eps[500].Send(message(1, "")))
	h := hub.(*memVan)
	require.NotNil(t, h.first)
	require.Nil(t, h.first.next, "one active endpoint, one in the list")
	require.Equal(t, "M", kinds(drain(hub)))
	for i := range eps {
		require.NoError(t, eps[i].Send(message(2, "", []byte{1})))
	}
	require.Len(t, drain(hub), n)
	require.NoError(t, hub.Close())
	for i := range vans {
		require.Equal(t, "L", last(kinds(drain(vans[i]))))
	}
}

func last(s string) string { return s[len(s)-1:] }

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for _, oneSided := range []bool{false, true} {
		net := NewNetwork()
		a, b := newVan(t, net, Options{OneSided: oneSided}), newVan(t, net, Options{OneSided: oneSided})
		out, in := connect(t, a, b)
		m := message(1, "some meta", make([]byte, 4096), make([]byte, 100))
		if oneSided {
			g, err := in.(van.Granter).Grant(make([]byte, 8192), 1, van.RightWrite)
			require.NoError(t, err)
			m.Target = []van.Target{{Grant: g.ID, Generation: 1}, {Grant: g.ID, Generation: 1, Offset: 4096}}
		}
		events := make([]van.Event, 16)
		exchange := func() {
			for range 4 {
				if out.Send(m) != nil {
					t.Error("send failed")
				}
			}
			for _, ev := range events[:b.Poll(events, false)] {
				ev.Delivery.Release()
			}
			if a.Poll(events, false) != 4 {
				t.Error("completions missing")
			}
		}
		exchange()
		require.Zero(t, testing.AllocsPerRun(200, exchange))
	}
}

func TestOnlyTheArmedAreWokenAndOnce(t *testing.T) {
	wakes := 0
	net := NewNetwork()
	a, b := newVan(t, net, Options{}), newVan(t, net, Options{Wake: func() { wakes++ }})
	out, _ := connect(t, a, b)
	send := func() {
		for i := range 3 {
			require.NoError(t, out.Send(message(van.OpID(i), "")))
		}
	}
	send()
	require.Zero(t, wakes)
	var one [1]van.Event
	require.Equal(t, 1, b.Poll(one[:], true))
	require.False(t, b.Arm())
	require.Equal(t, "MM", kinds(drain(b)))
	require.True(t, b.Arm())
	send()
	require.Equal(t, 1, wakes)
	require.Equal(t, "MMM", kinds(drain(b)))
	send()
	require.Equal(t, 1, wakes, "Poll ends the armed state")
}
