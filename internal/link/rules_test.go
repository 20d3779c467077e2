package link_test

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
)

// What a service sends from Opened has payload, and must not overtake the answer to the handshake.
func TestPayloadSentFromOpenedArrives(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		for range 10 {
			b := newNode(t, k, "b", nil)
			b.Handle(link.ChannelRequest, &greeter{})
			bound, err := b.Listen(k.Addr("b"))
			require.NoError(t, err)
			a := newNode(t, k, "a", nil)
			ha := newEcho(a)
			a.Handle(link.ChannelRequest, ha)
			_, err = a.Dial(pairtest.Context(t), bound)
			require.NoError(t, err)
			m := ha.take(t)
			require.Equal(t, "welcome", string(m.Payload))
			m.Release()
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
		}
	})
}

// greeter sends a message to each peer that connects.
type greeter struct{ link.BaseHandler }

func (*greeter) Opened(s *link.Session) error {
	return s.Send(&link.Outbound{Channel: link.ChannelRequest, Payload: [][]byte{[]byte("welcome")}})
}

func (*greeter) Receive(*link.Inbound) (kept bool) { return false }

// picky refuses in Opened.
type picky struct{ link.BaseHandler }

func (picky) Opened(*link.Session) error        { return errors.New("wrong shard") }
func (picky) Receive(*link.Inbound) (kept bool) { return false }

func TestRefusalOfTheDiallingSideIsToldToBoth(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		b := newNode(t, k, "b", nil)
		hb := newEcho(b)
		b.Handle(link.ChannelRequest, hb)
		bound, err := b.Listen(k.Addr("b"))
		require.NoError(t, err)
		a := newNode(t, k, "a", nil)
		a.Handle(link.ChannelRequest, picky{})
		_, err = a.Dial(pairtest.Context(t), bound)
		require.ErrorContains(t, err, "wrong shard")
		hb.await(t, func() bool { return len(hb.lost) == 1 })
		require.ErrorIs(t, hb.lost[0], stepvan.ErrRemote)
		require.ErrorContains(t, hb.lost[0], "wrong shard")
	})
}

func TestWhatWasDeliveredBeforeAGoodbyeIsDone(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		for range 20 {
			p := newPair(t, k, nil)
			done := &signal{node: p.a}
			require.NoError(t, p.sa.Send(&link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{pattern(900, 1)}, Completer: done}))
			require.NoError(t, p.sa.Close(""))
			require.NoError(t, done.wait(t))
			p.hb[link.ChannelBulk].take(t).Release()
			require.NoError(t, p.a.Close())
			require.NoError(t, p.b.Close())
		}
	})
}

func TestSeveralClosersWaitForTheOrderlyEnd(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		p := newPair(t, k, nil)
		data := pattern(32<<20, 2)
		require.NoError(t, p.sa.Send(&link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{data}}))
		var closers sync.WaitGroup
		for range 3 {
			closers.Go(func() {
				if err := p.a.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closers.Wait()
		m := p.hb[link.ChannelBulk].take(t)
		require.True(t, bytes.Equal(data, m.Payload))
		m.Release()
	})
}

func TestOneCallCannotOverfillAQueue(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		p := newPair(t, k, func(o *link.Options) { o.CreditBytes, o.QueueMessages = 1000, 2 })
		var ss []*link.Session
		var os []*link.Outbound
		for range 10 {
			ss = append(ss, p.sa)
			os = append(os, &link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{make([]byte, 900)}})
		}
		require.ErrorIs(t, p.a.SendAll(ss, os), stepvan.ErrWouldBlock)
		require.NoError(t, p.a.SendAll(ss[:2], os[:2]))
		for range 2 {
			p.hb[link.ChannelBulk].take(t).Release()
		}
	})
}

// Unknown peers that connect while a node closes must not disturb its end.
func TestCloseAmongStrangers(t *testing.T) {
	k := pairtest.TCP()
	for range 20 {
		b := newNode(t, k, "b", nil)
		bound, err := b.Listen(k.Addr("b"))
		require.NoError(t, err)
		addr := strings.TrimPrefix(bound[0], "tcp://")
		var visiting sync.WaitGroup
		var over atomic.Bool
		for range 4 {
			visiting.Go(func() {
				for !over.Load() { // nobody listens any more, unless another process has taken the port
					c, err := net.Dial("tcp", addr)
					if err != nil {
						return
					}
					_, _ = c.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
					_ = c.Close()
				}
			})
		}
		require.NoError(t, b.Close())
		over.Store(true)
		visiting.Wait()
	}
}
