package memvan

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

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
	net := NewNetwork(NetworkOptions{})
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

func TestKillFreesNameAndAddress(t *testing.T) {
	net := NewNetwork(NetworkOptions{})
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
	require.True(t, net.Kill("b"))
	require.False(t, net.Kill("b"))
	require.Equal(t, "CL", kinds(drain(a)))
	require.Empty(t, drain(b), "the acceptance died with the van")
	reborn := newVan(t, net, Options{Name: "b"})
	_, err = reborn.Listen("b:1")
	require.NoError(t, err)
	_, err = a.Dial(context.Background(), addr)
	require.NoError(t, err)
}

func TestCutReportsLossOnBothSides(t *testing.T) {
	net := NewNetwork(NetworkOptions{})
	a, b := newVan(t, net, Options{Name: "a"}), newVan(t, net, Options{Name: "b"})
	connect(t, a, b)
	connect(t, b, a)
	require.Equal(t, 2, net.Cut("b", "a"))
	require.Equal(t, 0, net.Cut("b", "c"))
	require.Equal(t, "LL", kinds(drain(a)))
	require.Equal(t, "LL", kinds(drain(b)))
	require.Equal(t, 0, net.Cut("a", "b"), "lost connections are forgotten")
}

func TestPartitionHoldsDialsUntilHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := NewNetwork(NetworkOptions{})
		a, b := newVan(t, net, Options{Name: "a"}), newVan(t, net, Options{Name: "b"})
		addr, err := b.Listen("b")
		require.NoError(t, err)
		require.Equal(t, 0, net.Partition("a", "b"))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err = a.Dial(ctx, addr)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		go func() {
			time.Sleep(time.Hour)
			net.Heal("a", "b")
		}()
		start := time.Now()
		_, err = a.Dial(context.Background(), addr)
		require.NoError(t, err)
		require.Equal(t, time.Hour, time.Since(start))
	})
}

func TestStallHoldsBothDirections(t *testing.T) {
	net := NewNetwork(NetworkOptions{})
	a, b := newVan(t, net, Options{Name: "a"}), newVan(t, net, Options{Name: "b"})
	out, in := connect(t, a, b)
	require.True(t, net.Stall("b"))
	require.False(t, net.Stall("nobody"))
	require.NoError(t, out.Send(message(1, "to b")))
	require.NoError(t, in.Send(message(2, "to a")))
	require.Empty(t, drain(a))
	require.Empty(t, drain(b))
	require.True(t, net.Resume("b"))
	require.Equal(t, "M", kinds(drain(a)))
	require.Equal(t, "CM", kinds(drain(b)), "completions first")
	require.Equal(t, "C", kinds(drain(a)))
}

// A message that came while the van stood still woke its owner in vain, and later ones do not. So Resume has to.
func TestResumeWakes(t *testing.T) {
	net := NewNetwork(NetworkOptions{})
	wakes := 0
	a, b := newVan(t, net, Options{Name: "a"}), newVan(t, net, Options{Name: "b", Wake: func() { wakes++ }})
	out, _ := connect(t, a, b)
	wakes = 0
	require.True(t, net.Stall("b"))
	require.True(t, b.Arm())
	require.NoError(t, out.Send(message(1, "one")))
	require.Equal(t, 1, wakes)
	require.Empty(t, drain(b))
	require.True(t, b.Arm(), "a van that stands still has nothing to poll")
	require.NoError(t, out.Send(message(2, "two")))
	require.Equal(t, 1, wakes, "its endpoint is queued already")
	require.True(t, net.Resume("b"))
	require.Equal(t, 2, wakes)
	require.Equal(t, "MM", kinds(drain(b)))
}

func TestCorruptCostsTheConnection(t *testing.T) {
	net := NewNetwork(NetworkOptions{})
	a, b := newVan(t, net, Options{Name: "a"}), newVan(t, net, Options{Name: "b"})
	out, _ := connect(t, a, b)
	require.NoError(t, out.Send(message(1, "fine")))
	require.Equal(t, 1, net.Corrupt("a", "b"))
	require.NoError(t, out.Send(message(2, "damaged")))
	got := drain(b)
	require.Equal(t, "ML", kinds(got))
	var pe *stepvan.ProtocolError
	require.ErrorAs(t, got[1].Err, &pe)
	require.Equal(t, "checksum", pe.Field)
	lost := drain(a)
	require.Equal(t, "CCL", kinds(lost))
	require.ErrorIs(t, lost[1].Err, stepvan.ErrPeerLost)
}

func TestDelayAndJitterKeepOrderOfAnEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		net := NewNetwork(NetworkOptions{Seed: 7, Delay: 10 * time.Millisecond, Jitter: 30 * time.Millisecond})
		bell := make(chan struct{}, 1)
		ring := func() {
			select {
			case bell <- struct{}{}:
			default:
			}
		}
		a, b := newVan(t, net, Options{}), newVan(t, net, Options{Wake: ring})
		addr, err := b.Listen("")
		require.NoError(t, err)
		start := time.Now()
		var outs [2]van.Endpoint
		for i := range outs {
			outs[i], err = a.Dial(context.Background(), addr)
			require.NoError(t, err)
		}
		for i := range n {
			require.NoError(t, outs[i%2].Send(message(van.OpID(i+1), "", []byte{byte(i)})))
		}
		last := map[van.Endpoint]uint64{}
		var order []uint64
		for len(order) < n {
			if b.Arm() {
				<-bell
			}
			for events := drain(b); len(events) > 0; events = drain(b) {
				for _, ev := range events {
					if ev.Kind != van.EventMessage {
						continue
					}
					seq := ev.Delivery.Header.Sequence
					require.Greater(t, seq, last[ev.Endpoint])
					last[ev.Endpoint] = seq
					order = append(order, seq)
					ev.Delivery.Release()
				}
			}
		}
		require.GreaterOrEqual(t, time.Since(start), 10*time.Millisecond)
		require.NotEqual(t, increasing(n), order, "jitter must reorder between endpoints")
	})
}

func increasing(n int) (s []uint64) {
	for i := range n {
		s = append(s, uint64(i+1))
	}
	return s
}

func TestReorderIsSeeded(t *testing.T) {
	run := func(opt NetworkOptions) (order []string) {
		net := NewNetwork(opt)
		hub := newVan(t, net, Options{Name: "hub"})
		addr, err := hub.Listen("hub")
		require.NoError(t, err)
		for i := range 32 {
			v := newVan(t, net, Options{Name: fmt.Sprint(i)})
			ep, err := v.Dial(context.Background(), addr)
			require.NoError(t, err)
			require.NoError(t, ep.Send(message(1, "")))
		}
		for _, ev := range drain(hub) {
			order = append(order, ev.Endpoint.Peer())
		}
		return order
	}
	plain := run(NetworkOptions{Seed: 1})
	one := run(NetworkOptions{Seed: 1, Reorder: true})
	require.Equal(t, one, run(NetworkOptions{Seed: 1, Reorder: true}))
	require.NotEqual(t, one, plain)
	require.NotEqual(t, one, run(NetworkOptions{Seed: 2, Reorder: true}))
}

func TestLossIsSeeded(t *testing.T) {
	run := func(seed uint64) (survived int) {
		net := NewNetwork(NetworkOptions{Seed: seed, LossRate: 0.02})
		a, b := newVan(t, net, Options{Queue: 4096}), newVan(t, net, Options{})
		require.True(t, a.Caps().Lossy)
		out, _ := connect(t, a, b)
		for survived < 4000 && out.Send(message(van.OpID(survived), "")) == nil {
			survived++
		}
		require.Equal(t, survived, len(drain(a))-1, "all completions and the loss")
		return survived
	}
	first := run(1)
	require.Less(t, first, 4000)
	require.Equal(t, first, run(1))
	differs := false
	for seed := range uint64(5) {
		differs = differs || run(seed+2) != first
	}
	require.True(t, differs)
}

func TestPollCostsActiveEndpointsOnly(t *testing.T) {
	const n = 1000
	net := NewNetwork(NetworkOptions{})
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
		net := NewNetwork(NetworkOptions{})
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
	net := NewNetwork(NetworkOptions{})
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
