package link_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van/tcpvan"
)

func uint16ch(c int) wire.Channel { return wire.Channel(c) }

func kinds(t testing.TB) []pairtest.Van {
	return []pairtest.Van{pairtest.Mem(), pairtest.TCP(), pairtest.TCPVan("rails", tcpvan.Options{Rails: 3}), unixKind(t.TempDir())}
}

func forKinds(t *testing.T, f func(t *testing.T, k pairtest.Van)) {
	for _, k := range kinds(t) {
		t.Run(k.Name, func(t *testing.T) { f(t, k) })
	}
}

func TestMessagesOfAllSizesArriveWholeAndInOrder(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		p := newPair(t, k, func(o *link.Options) { o.PieceBytes = 1000 })
		sizes := []int{0, 1, 8, 999, 1000, 1001, 5000, 100_000}
		for i, size := range sizes {
			data := pattern(size, byte(i))
			done := &signal{node: p.a}
			o := &link.Outbound{Channel: link.ChannelRequest, Op: uint8(i), Meta: []byte(describe(i)), Completer: done}
			if size > 0 {
				o.Payload = [][]byte{data[:size/3], data[size/3:]}
			}
			require.NoError(t, p.sa.Send(o))
			m := p.hb[link.ChannelRequest].take(t)
			require.Equal(t, describe(i), string(m.Meta))
			require.Equal(t, uint8(i), m.Header.Op)
			require.True(t, bytes.Equal(data, m.Payload), "size %d", size)
			m.Release()
			require.NoError(t, done.wait(t))
		}
	})
}

func TestBothEndsSend64MiBBeforeEitherWaits(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		p := newPair(t, k, nil)
		data := pattern(64<<20, 3)
		da, db := &signal{node: p.a}, &signal{node: p.b}
		require.NoError(t, p.sa.Send(&link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{data}, Completer: da}))
		require.NoError(t, p.sb.Send(&link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{data}, Completer: db}))
		ma, mb := p.ha[link.ChannelBulk].take(t), p.hb[link.ChannelBulk].take(t)
		require.True(t, bytes.Equal(data, ma.Payload) && bytes.Equal(data, mb.Payload))
		ma.Release()
		mb.Release()
		require.NoError(t, da.wait(t))
		require.NoError(t, db.wait(t))
	})
}

func TestTransferGoesOnWhileNobodyWaits(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		p := newPair(t, k, nil)
		data := pattern(64<<20, 9)
		whole := make(chan bool, 1)
		p.ha[link.ChannelBulk].use(nil, func(m *link.Inbound) {
			whole <- bytes.Equal(data, m.Payload)
			m.Release()
		})
		require.NoError(t, p.sb.Send(&link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{data}}))
		select { // neither node's engine is ever waited on
		case same := <-whole:
			require.True(t, same)
		case <-pairtest.Context(t).Done():
			t.Fatal("the transfer stood still")
		}
	})
}

func TestGoodbyeArrivesAfterEverythingAccepted(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		p := newPair(t, k, func(o *link.Options) { o.PieceBytes = 4096 })
		data := pattern(3<<20, 1)
		done := &signal{node: p.a}
		require.NoError(t, p.sa.Send(&link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{data}, Completer: done}))
		require.NoError(t, p.sa.Close("work is done"))
		require.ErrorIs(t, p.sa.Send(&link.Outbound{Channel: link.ChannelBulk}), stepvan.ErrClosed)
		hb := p.hb[link.ChannelBulk]
		hb.await(t, func() bool { return len(hb.lost) == 1 })
		require.ErrorIs(t, hb.lost[0], link.ErrLeft)
		require.ErrorContains(t, hb.lost[0], "work is done")
		m := hb.take(t)
		require.True(t, bytes.Equal(data, m.Payload))
		m.Release()
		ha := p.ha[link.ChannelBulk]
		ha.await(t, func() bool { return len(ha.lost) == 1 })
		require.ErrorIs(t, ha.lost[0], stepvan.ErrClosed)
	})
}

func TestRefusalIsToldToBothSides(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		b := newNode(t, k, "b", func(o *link.Options) {
			o.Admit = func(id link.Identity) error { return errors.New("no room for " + id.Name) }
		})
		bound, err := b.Listen(k.Addr("b"))
		require.NoError(t, err)
		a := newNode(t, k, "a", nil)
		_, err = a.Dial(pairtest.Context(t), bound)
		require.ErrorIs(t, err, stepvan.ErrRemote)
		require.ErrorContains(t, err, "no room for a")
	})
}

func TestLossFailsEverythingOnceAndNamesThePeer(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		p := newPair(t, k, nil)
		hold := &signal{node: p.a}
		require.NoError(t, p.b.Close()) // says goodbye
		h := p.ha[link.ChannelRequest]
		h.await(t, func() bool { return len(h.lost) == 1 })
		require.ErrorIs(t, h.lost[0], link.ErrLeft)
		require.ErrorContains(t, h.lost[0], "b (")
		err := p.sa.Send(&link.Outbound{Channel: link.ChannelRequest, Completer: hold})
		require.ErrorIs(t, err, link.ErrLeft)
		require.False(t, hold.ev.IsSet(), "a refused message must not be completed")
	})
}

func TestCreditHoldsTheSenderAndReleaseFreesIt(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		p := newPair(t, k, func(o *link.Options) { o.CreditBytes = 10_000 })
		hb := p.hb[link.ChannelBulk]
		for range 5 {
			require.NoError(t, p.sa.Send(&link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{pattern(4000, 0)}}))
		}
		// Control messages pass while data may not.
		require.NoError(t, p.sa.Send(&link.Outbound{Channel: link.ChannelControl, Payload: [][]byte{pattern(50_000, 0)}}))
		p.hb[link.ChannelControl].take(t).Release()
		hb.await(t, func() bool { return len(hb.got) == 2 })
		for range 5 {
			hb.take(t).Release()
		}
	})
}

func TestPlacementGoesToTheHandlersMemory(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		p := newPair(t, k, func(o *link.Options) { o.PieceBytes = 100 })
		one, two := make([]byte, 333), make([]byte, 667)
		p.hb[link.ChannelBulk].use(func(_ *link.Inbound, dst [][]byte) ([][]byte, error) {
			return append(dst, one, two), nil
		}, nil)
		data := pattern(1000, 5)
		require.NoError(t, p.sa.Send(&link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{data}}))
		m := p.hb[link.ChannelBulk].take(t)
		require.Equal(t, data, append(append([]byte(nil), one...), two...))
		require.Empty(t, m.Payload)
		m.Release()

		p.hb[link.ChannelBulk].use(func(_ *link.Inbound, dst [][]byte) ([][]byte, error) {
			return dst, errors.New("too large for its chunk")
		}, nil)
		require.NoError(t, p.sa.Send(&link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{data}}))
		m = p.hb[link.ChannelBulk].take(t)
		require.ErrorContains(t, m.Refused, "too large for its chunk")
		m.Release()
		require.NoError(t, p.sa.Err(), "a refused payload must not cost the session")
	})
}

func TestBroadcastIsAcceptedByAllOrNone(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		p := newPair(t, k, func(o *link.Options) { o.CreditBytes, o.QueueMessages = 1000, 2 })
		c := newNode(t, k, "c", nil)
		hc := newEcho(c)
		c.Handle(link.ChannelBulk, hc)
		bound, err := c.Listen(k.Addr("c"))
		require.NoError(t, err)
		toC, err := p.a.Dial(pairtest.Context(t), bound)
		require.NoError(t, err)
		big := func() *link.Outbound {
			return &link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{make([]byte, 900)}}
		}
		for range 4 { // two on their way, half the window each, and two in the queue
			require.NoError(t, p.sa.Send(big()))
		}
		refused := &signal{node: p.a}
		o := big()
		o.Completer = refused
		err = p.a.SendAll([]*link.Session{toC, p.sa}, []*link.Outbound{o, big()})
		require.ErrorIs(t, err, stepvan.ErrWouldBlock)
		mark := big()
		mark.Op = 7
		require.NoError(t, toC.Send(mark))
		m := hc.take(t)
		require.Equal(t, uint8(7), m.Header.Op, "the refused broadcast reached a server")
		m.Release()
		require.False(t, refused.ev.IsSet())
		for range 4 {
			p.hb[link.ChannelBulk].take(t).Release()
		}
	})
}
