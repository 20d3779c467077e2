package link

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/memvan"
)

// openHanded is a sink that grants memory to every peer that connects.
type openHanded struct {
	sink
	granted chan van.Target
}

func (h *openHanded) Opened(s *Session) error {
	g, err := s.Grant(make([]byte, 4<<20), 1, van.RightWrite)
	h.granted <- van.Target{Grant: g.ID, Generation: 1}
	return err
}

// writer is a peer on a one-sided van that sends what it likes, in one burst.
type writer struct {
	t       *testing.T
	ep      van.Endpoint
	target  van.Target
	channel wire.Channel
	seq     uint64
}

// piece sends n bytes of a message of total; written: into the grant.
func (w *writer) piece(written bool, off, n, total uint64) {
	w.seq++
	h := data(w.seq)
	h.Channel, h.Offset, h.Payload, h.Total = w.channel, off, n, total
	m := &van.Message{Op: van.OpID(w.seq), Head: make([]byte, wire.HeaderSize), Payload: [][]byte{make([]byte, n)}}
	if written {
		m.Target = []van.Target{w.target}
	}
	h.Encode(m.Head, nil)
	require.NoError(w.t, w.ep.Send(m))
}

// along sends n bytes of a message of total along with the head.
func (w *writer) along(off, n, total uint64) {
	target := w.target
	w.target = van.Target{}
	w.piece(true, off, n, total)
	w.target = target
}

func newWriter(t *testing.T, o memvan.Options) (*writer, *openHanded) {
	net := memvan.NewNetwork()
	mem, err := tensor.NewAllocator(tensor.Options{})
	require.NoError(t, err)
	n, err := NewTransport(Options{
		Vans: []VanMaker{func(p van.Placer, wake func()) (van.Van, error) {
			o := o
			o.Placer, o.Wake = p, wake
			return memvan.New(net, o)
		}},
		Memory: mem, Log: zerolog.Nop(), CreditBytes: 1 << 20,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, n.Close())
		require.NoError(t, mem.Close())
	})
	h := &openHanded{sink{node: n, lost: make(chan error, 3)}, make(chan van.Target, 3)}
	for _, c := range []wire.Channel{ChannelRequest, ChannelBulk, ChannelResponse} {
		n.Handle(c, h)
	}
	_, err = n.Listen("mem://victim")
	require.NoError(t, err)
	o.Placer = (*placer)(n)
	v, err := memvan.New(net, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	ep, err := v.Dial(context.Background(), "victim")
	require.NoError(t, err)
	hello := make([]byte, wire.HeaderSize)
	meta := appendIdentity(nil, Identity{Name: "mallory"}, 1<<20)
	(&wire.Header{Kind: wire.KindHello}).Encode(hello, meta)
	require.NoError(t, ep.Send(&van.Message{Head: append(hello, meta...)}))
	return &writer{t: t, ep: ep, target: <-h.granted, channel: ChannelRequest}, h
}

func TestHostileWriters(t *testing.T) {
	const written, placed = true, false
	for name, c := range map[string]struct {
		reason string
		act    func(w *writer)
	}{
		"begins in the middle":           {"offset", func(w *writer) { w.piece(written, 8, 8, 16) }},
		"leaves a piece out":             {"offset", func(w *writer) { w.piece(written, 0, 8, 24); w.piece(written, 16, 8, 24) }},
		"changes the total":              {"offset", func(w *writer) { w.piece(written, 0, 8, 24); w.piece(written, 8, 8, 16) }},
		"begins inside its message":      {"offset", func(w *writer) { w.piece(written, 0, 8, 24); w.piece(written, 0, 8, 24) }},
		"goes on with a placed piece":    {"offset", func(w *writer) { w.piece(written, 0, 8, 24); w.piece(placed, 8, 8, 24) }},
		"begins a placed message inside": {"offset", func(w *writer) { w.piece(written, 0, 8, 24); w.piece(placed, 0, 8, 8) }},
		"goes on with a placed message":  {"offset", func(w *writer) { w.piece(placed, 0, 8, 24); w.piece(written, 8, 8, 24) }},
		"begins inside a placed message": {"offset", func(w *writer) { w.piece(placed, 0, 8, 24); w.piece(written, 0, 8, 8) }},
		"sends an empty piece":           {"payload", func(w *writer) { w.piece(placed, 0, 0, 8) }},
		"sends more than it has credit for": {"credit", func(w *writer) {
			for _, w.channel = range []wire.Channel{ChannelRequest, ChannelBulk, ChannelResponse} {
				w.piece(written, 0, 8, 1<<20) // takes half the window
			}
		}},
		"writes a message for nobody's channel": {"channel", func(w *writer) { w.channel = 9; w.piece(written, 0, 8, 8) }},
	} {
		t.Run(name, func(t *testing.T) { requireLostWriter(t, memvan.Options{OneSided: true}, c.reason, c.act) })
	}
}

func TestHostileWritersWithADevice(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		act    func(w *writer)
	}{
		"has more travel with its heads than the van takes": {"payload", func(w *writer) { w.along(0, 1024, 2048); w.along(1024, 1, 2048) }},
		"changes the total of what travels with heads":      {"offset", func(w *writer) { w.along(0, 8, 24); w.along(8, 8, 16) }},
		"begins with what travels with heads in the middle": {"offset", func(w *writer) { w.along(8, 8, 24) }},
	} {
		t.Run(name, func(t *testing.T) {
			requireLostWriter(t, memvan.Options{OneSided: true, Offload: true}, c.reason, c.act)
		})
	}
}

// requireLostWriter fails unless what a writer does costs it the session, for this reason.
func requireLostWriter(t *testing.T, o memvan.Options, reason string, act func(*writer)) {
	w, h := newWriter(t, o)
	act(w)
	select {
	case err := <-h.lost:
		require.ErrorIs(t, err, stepvan.ErrPeerLost)
		require.ErrorContains(t, err, reason)
	case <-time.After(hostileBound):
		t.Fatal("the victim never gave the peer up")
	}
	require.Zero(t, h.received)
}
