package link

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/tcpvan"
)

const hostileBound = 20 * time.Second

// sink is a Handler that counts, and tells losses.
type sink struct {
	BaseHandler
	node     *Transport
	received int
	lost     chan error
}

func (h *sink) Receive(*Inbound) (kept bool) { h.received++; return false }

func (h *sink) Lost(_ *Session, err error) { h.lost <- err }

func newVictim(t testing.TB, o ...tcpvan.Options) (addr string, h *sink, n *Transport) {
	n = newNode(t, o...)
	h = &sink{node: n, lost: make(chan error, 16)}
	return listen(t, n, h), h, n
}

// listen gives all channels to h.
func listen(t testing.TB, n *Transport, h Handler) (addr string) {
	for _, c := range []wire.Channel{ChannelRequest, ChannelBulk, ChannelResponse} {
		n.Handle(c, h)
	}
	bound, err := n.Listen("tcp://127.0.0.1:0")
	require.NoError(t, err)
	return strings.TrimPrefix(bound[0], "tcp://")
}

func newNode(t testing.TB, o ...tcpvan.Options) *Transport {
	mem, err := tensor.NewAllocator(tensor.Options{})
	require.NoError(t, err)
	maker := func(p van.Placer, _ func()) (van.Van, error) {
		options := append(o, tcpvan.Options{})[0]
		options.Placer = p
		return tcpvan.New(options)
	}
	n, err := NewTransport(Options{
		Vans:   []VanMaker{maker},
		Memory: mem, Log: zerolog.Nop(), CreditBytes: 1 << 20,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, n.Close())
		require.NoError(t, mem.Close())
	})
	return n
}

// attacker is a peer that writes what it likes.
type attacker struct {
	t testing.TB
	c net.Conn
}

func attack(t testing.TB, addr string) *attacker {
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(hostileBound)))
	return &attacker{t, c}
}

func (a *attacker) send(h wire.Header, meta, payload []byte) {
	b := make([]byte, wire.HeaderSize)
	h.Encode(b, meta)
	_, err := a.c.Write(append(append(b, meta...), payload...))
	require.NoError(a.t, err)
}

func (a *attacker) hello() {
	a.send(wire.Header{Kind: wire.KindHello}, appendIdentity(nil, Identity{Name: "mallory"}, 1<<20), nil)
	h := a.read()
	require.Equal(a.t, wire.KindWelcome, h.Kind)
}

func (a *attacker) read() wire.Header {
	b := make([]byte, wire.HeaderSize)
	_, err := io.ReadFull(a.c, b)
	require.NoError(a.t, err)
	var h wire.Header
	require.NoError(a.t, h.Decode(b, wire.DefaultLimits))
	_, err = io.CopyN(io.Discard, a.c, int64(h.Meta)+int64(h.Payload))
	require.NoError(a.t, err)
	return h
}

// dropped waits until the victim has closed the connection.
func (a *attacker) dropped() {
	_, err := io.Copy(io.Discard, a.c)
	var timeout net.Error
	require.False(a.t, errors.As(err, &timeout) && timeout.Timeout(), "the connection stayed open")
}

func data(seq uint64) wire.Header {
	return wire.Header{Kind: wire.KindData, Channel: ChannelRequest, Sequence: seq}
}

func TestAlmostRightProtocolCostsTheConnectionOnly(t *testing.T) {
	piece := func(seq, off, n, total uint64) wire.Header {
		h := data(seq)
		h.Offset, h.Payload, h.Total = off, n, total
		return h
	}
	bytes := func(n int) []byte { return make([]byte, n) }
	cases := []struct {
		name   string
		reason string // in the error that the victim's handlers see; "" before the handshake
		act    func(a *attacker)
	}{
		{"data before hello", "", func(a *attacker) { a.send(data(1), nil, nil) }},
		{"payload before hello", "", func(a *attacker) { a.send(piece(1, 0, 8, 8), nil, bytes(8)) }},
		{"welcome instead of hello", "", func(a *attacker) { a.send(wire.Header{Kind: wire.KindWelcome}, nil, nil) }},
		{"hello cut off", "", func(a *attacker) { a.send(wire.Header{Kind: wire.KindHello}, []byte{1, 2, 3}, nil) }},
		{"name longer than the hello", "", func(a *attacker) {
			b := appendIdentity(nil, Identity{Name: "x"}, 1)
			binary.LittleEndian.PutUint16(b[16:], 60_000)
			a.send(wire.Header{Kind: wire.KindHello}, b, nil)
		}},
		{"reason longer than the hello", "", func(a *attacker) {
			b := appendIdentity(nil, Identity{Name: "x"}, 1)
			binary.LittleEndian.PutUint16(b[18:], 60_000)
			a.send(wire.Header{Kind: wire.KindHello}, b, nil)
		}},
		{"hello twice", "out of turn", func(a *attacker) {
			a.hello()
			a.send(wire.Header{Kind: wire.KindHello}, appendIdentity(nil, Identity{}, 1), nil)
		}},
		{"another life", "incarnation", func(a *attacker) {
			a.hello()
			h := data(1)
			h.Incarnation = 5
			a.send(h, nil, nil)
		}},
		{"sequence skipped", "sequence", func(a *attacker) { a.hello(); a.send(data(2), nil, nil) }},
		{"sequence repeated", "sequence", func(a *attacker) { a.hello(); a.send(data(1), nil, nil); a.send(data(1), nil, nil) }},
		{"channel nobody serves", "channel", func(a *attacker) {
			a.hello()
			h := data(1)
			h.Channel = 9
			a.send(h, nil, nil)
		}},
		{"channel out of range", "channel", func(a *attacker) {
			a.hello()
			h := data(1)
			h.Channel = 65535
			a.send(h, nil, nil)
		}},
		{"acknowledges the future", "ack", func(a *attacker) {
			a.hello()
			h := data(1)
			h.Ack = 77
			a.send(h, nil, nil)
		}},
		{"releases the future", "credit", func(a *attacker) {
			a.hello()
			h := data(1)
			h.Credit = 1 << 40
			a.send(h, nil, nil)
		}},
		{"second piece first", "offset", func(a *attacker) { a.hello(); a.send(piece(1, 8, 8, 16), nil, bytes(8)) }},
		{"piece missing", "offset", func(a *attacker) {
			a.hello()
			a.send(piece(1, 0, 8, 24), nil, bytes(8))
			a.send(piece(2, 16, 8, 24), nil, bytes(8))
		}},
		{"total changes", "offset", func(a *attacker) {
			a.hello()
			a.send(piece(1, 0, 8, 24), nil, bytes(8))
			a.send(piece(2, 8, 8, 32), nil, bytes(8))
		}},
		{"message inside a message", "offset", func(a *attacker) {
			a.hello()
			a.send(piece(1, 0, 8, 24), nil, bytes(8))
			a.send(piece(2, 0, 8, 24), nil, bytes(8))
		}},
		{"small message inside a message", "offset", func(a *attacker) {
			a.hello()
			a.send(piece(1, 0, 20, 24), nil, bytes(20))
			a.send(piece(2, 0, 8, 8), nil, bytes(8))
		}},
		{"small message inside a small one", "offset", func(a *attacker) {
			a.hello()
			a.send(piece(1, 0, 8, 24), nil, bytes(8))
			a.send(piece(2, 0, 8, 8), nil, bytes(8))
		}},
		{"empty piece", "payload", func(a *attacker) { a.hello(); a.send(piece(1, 0, 0, 24), nil, nil) }},
		{"acknowledgement with payload", "payload", func(a *attacker) {
			a.hello()
			a.send(wire.Header{Kind: wire.KindAck, Payload: 8, Total: 8}, nil, bytes(8))
		}},
		{"more than it has credit for", "credit", func(a *attacker) {
			a.hello()
			a.send(piece(1, 0, 8, 1<<20), nil, bytes(8)) // half the window
			h := piece(2, 0, 8, 1<<20)                   // the other half
			h.Channel = ChannelBulk
			a.send(h, nil, bytes(8))
			h = piece(3, 0, 8, 8)
			h.Channel = ChannelResponse
			a.send(h, nil, bytes(8))
		}},
		{"data and hello together, before any answer", "", func(a *attacker) {
			b := make([]byte, 2*wire.HeaderSize)
			bad, good := data(1), wire.Header{Kind: wire.KindHello}
			bad.Encode(b, nil)
			meta := appendIdentity(nil, Identity{Name: "mallory"}, 1)
			good.Encode(b[wire.HeaderSize:], meta)
			_, _ = a.c.Write(append(b, meta...))
		}},
		{"closes inside a payload", "peer lost", func(a *attacker) {
			a.hello()
			a.send(piece(1, 0, 1<<20, 1<<20), nil, bytes(5000))
			_ = a.c.Close()
		}},
		{"closes inside a header", "peer lost", func(a *attacker) {
			a.hello()
			_, _ = a.c.Write(bytes(0))
			_, _ = a.c.Write([]byte("SVAN"))
			_ = a.c.Close()
		}},
	}
	for i := range 2 * len(cases) {
		c, name, options := cases[i%len(cases)], "kept/", tcpvan.Options{}
		if i >= len(cases) {
			name, options.InMessage = "placed/", -1
		}
		t.Run(name+c.name, func(t *testing.T) {
			addr, h, _ := newVictim(t, options)
			good := attack(t, addr) // a peer that none of this may disturb
			good.hello()
			a := attack(t, addr)
			c.act(a)
			if c.reason != "" {
				select {
				case err := <-h.lost:
					require.ErrorIs(t, err, stepvan.ErrPeerLost)
					require.ErrorContains(t, err, c.reason)
					require.ErrorContains(t, err, "mallory")
				case <-time.After(hostileBound):
					t.Fatal("the victim never gave the peer up")
				}
			}
			a.dropped0()
			good.send(wire.Header{Kind: wire.KindData, Channel: ChannelRequest, Sequence: 1, Flags: wire.FlagAckNow}, nil, nil)
			require.Equal(t, uint64(1), good.read().Ack, "an innocent session suffered")
		})
	}
}

// dropped0 is dropped, unless the attacker itself has closed.
func (a *attacker) dropped0() {
	if _, err := a.c.Write(nil); err == nil {
		a.dropped()
	}
}

func TestOtherVersionIsToldToThePeer(t *testing.T) {
	addr, _, _ := newVictim(t)
	a := attack(t, addr)
	b := make([]byte, wire.HeaderSize)
	h := wire.Header{Kind: wire.KindHello}
	h.Encode(b, nil)
	binary.LittleEndian.PutUint16(b[4:], 99)
	_, err := a.c.Write(b)
	require.NoError(t, err)
	answer := make([]byte, 6)
	_, err = io.ReadFull(a.c, answer)
	require.NoError(t, err, "the victim must say which version it speaks")
	require.Equal(t, uint16(wire.Version), binary.LittleEndian.Uint16(answer[4:]))
}

func FuzzIdentity(f *testing.F) {
	f.Add(appendIdentity(nil, Identity{ID: 3, Incarnation: 9, Name: "worker 3", Reason: "shm: other user", Info: []byte("{}")}, 1<<20))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		id, credit, err := decodeIdentity(b)
		if err != nil {
			var p *stepvan.ProtocolError
			require.ErrorAs(t, err, &p)
			return
		}
		for _, r := range id.Name + id.Reason {
			require.True(t, r >= ' ' && r != 0x7f, "unprintable %q in a name", r)
		}
		again, credit2, err := decodeIdentity(appendIdentity(nil, id, credit))
		require.NoError(t, err)
		require.Equal(t, credit, credit2)
		require.Equal(t, id.ID, again.ID)
	})
}
