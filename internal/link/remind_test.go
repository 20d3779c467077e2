package link_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
)

// forgetful is a van that loses messages which it has accepted.
type forgetful struct {
	van.Van
	next *atomic.Uint32 // the kind of the next one that it loses; 0: none
}

func (f forgetful) Dial(ctx context.Context, addr string) (van.Endpoint, error) {
	ep, err := f.Van.Dial(ctx, addr)
	return forgetfulEnd{ep, f.next}, err
}

type forgetfulEnd struct {
	van.Endpoint
	next *atomic.Uint32
}

const (
	offKind   = 6      // of the wire header
	thenPanic = 1 << 8 // added to the kind: the Send after that panics
)

func (e forgetfulEnd) Send(m *van.Message) error {
	if e.next.CompareAndSwap(thenPanic, 0) {
		panic("on purpose")
	}
	kind := uint32(m.Head[offKind])
	if e.next.CompareAndSwap(kind, 0) || e.next.CompareAndSwap(thenPanic|kind, thenPanic) {
		m.Done = true
		return nil
	}
	return e.Endpoint.Send(m)
}

// forgetfulKind is a van whose dialling side loses one message, of the kind that next is set to.
func forgetfulKind() (k pairtest.Van, next *atomic.Uint32) {
	next = new(atomic.Uint32)
	k = pairtest.TCP()
	maker := k.Maker
	k.Maker = func(name string, memory *tensor.Allocator) link.VanMaker {
		inner := maker(name, memory)
		return func(p van.Placer, wake func()) (van.Van, error) {
			v, err := inner(p, wake)
			return forgetful{v, next}, err
		}
	}
	return k, next
}

// newForgetful makes a pair over it.
func newForgetful(t *testing.T, edit ...func(*link.Options)) (p *pair, next *atomic.Uint32) {
	k, next := forgetfulKind()
	return newPair(t, k, func(o *link.Options) {
		o.Remind = 10 * time.Millisecond
		for _, e := range edit {
			e(o)
		}
	}), next
}

// The peer would notice a vanished message when another one follows. None follows here, and still nobody must wait for
// ever.
func TestMessageThatVanished(t *testing.T) {
	p, next := newForgetful(t)
	next.Store(uint32(wire.KindData))
	done := &signal{node: p.a}
	require.NoError(t, p.sa.Send(&link.Outbound{Channel: link.ChannelRequest, Payload: [][]byte{{1}}, Completer: done}))
	require.ErrorIs(t, done.wait(t), stepvan.ErrPeerLost)
	h := p.hb[link.ChannelRequest]
	h.await(t, func() bool { return len(h.lost) > 0 })
	require.ErrorContains(t, h.lost[0], "1 messages were sent, and 0 of them came")
	require.Empty(t, h.got)
}

// The acknowledgement of a message may vanish as well, and that harms nobody.
func TestAcknowledgementThatVanished(t *testing.T) {
	p, next := newForgetful(t)
	send := func(flags wire.Flags) {
		done := &signal{node: p.b}
		require.NoError(t, p.sb.Send(&link.Outbound{Channel: link.ChannelRequest, Flags: flags, Payload: [][]byte{{1}}, Completer: done}))
		p.ha[link.ChannelRequest].take(t).Release()
		require.NoError(t, done.wait(t))
	}
	send(wire.FlagAckNow) // the handshake is over
	next.Store(uint32(wire.KindAck))
	send(wire.FlagAckNow)
	require.Zero(t, next.Load(), "it has vanished")
	send(wire.FlagAckNow)
}

// Credit may vanish too. A sender that expects nothing else from its peer asks for it again.
func TestCreditThatVanished(t *testing.T) {
	p, next := newForgetful(t, func(o *link.Options) { o.CreditBytes = 10_000 })
	send := func(o *link.Outbound) *signal {
		done := &signal{node: p.b}
		o.Completer = done
		require.NoError(t, p.sb.Send(o))
		return done
	}
	var sent [3]*signal
	for i := range sent {
		sent[i] = send(&link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{pattern(4000, 0)}})
	}
	require.NoError(t, sent[0].wait(t))
	require.NoError(t, sent[1].wait(t))
	// Everything that was sent before this message is acknowledged. The request for the credit that the third message
	// waits for has arrived.
	require.NoError(t, send(&link.Outbound{Channel: link.ChannelControl, Flags: wire.FlagAckNow}).wait(t))
	h := p.ha[link.ChannelBulk]
	next.Store(uint32(wire.KindAck))
	h.take(t).Release()
	require.Zero(t, next.Load(), "it has vanished")
	second, third := h.take(t), h.take(t)
	second.Release()
	third.Release()
	require.NoError(t, sent[2].wait(t))
}

// The driver contains a panic below a reminder like any other panic.
func TestAPanicInAReminderBreaksTheNode(t *testing.T) {
	k, next := forgetfulKind()
	b := newBreakable(t, k, func(o *link.Options) { o.Remind = 10 * time.Millisecond })
	next.Store(thenPanic | uint32(wire.KindData))
	require.NoError(t, b.sa.Send(&link.Outbound{Channel: link.ChannelRequest}))
	b.dead(t)
	require.Equal(t, "poll, ", <-b.at)
}
