package link_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
)

// The test overwrites the source as soon as Send or SendAll returns. The peer takes nothing at that moment, since
// credit is missing.
func TestTheSourceIsTheCallersAfterSendWithMemoryToSpare(t *testing.T) {
	for _, piece := range []int64{1000, 1 << 20} {
		forKinds(t, func(t *testing.T, k pairtest.Van) {
			p := newPair(t, k, func(o *link.Options) { o.PieceBytes, o.CreditBytes = piece, 5<<20 })
			const n = 12
			var want [n][]byte
			var done [n]*signal
			for i := range want {
				want[i] = pattern(1+i*i*20_000, byte(i))
				source := bytes.Clone(want[i])
				done[i] = &signal{node: p.a}
				cut := len(source) / 3
				o := &link.Outbound{
					Channel: link.ChannelBulk, Op: uint8(i), Completer: done[i],
					Payload: [][]byte{source[:cut], nil, source[cut:]}, Spare: make([]byte, len(source)),
				}
				if i%2 == 0 {
					require.NoError(t, p.sa.Send(o))
				} else {
					small := &link.Outbound{Channel: link.ChannelRequest}
					require.NoError(t, p.a.SendAll([]*link.Session{p.sa, p.sa}, []*link.Outbound{o, small}))
				}
				clear(source)
			}
			for i := range want {
				m := p.hb[link.ChannelBulk].take(t)
				require.Equal(t, uint8(i), m.Header.Op)
				require.True(t, bytes.Equal(want[i], m.Payload), "message %d", i)
				m.Release()
				require.NoError(t, done[i].wait(t))
			}
		})
	}
}

func TestMemoryToSpareThatIsTooSmallIsRefused(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		p := newPair(t, k, nil)
		o := &link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{make([]byte, 10)}, Spare: make([]byte, 9)}
		require.ErrorIs(t, p.sa.Send(o), stepvan.ErrInvalid)
	})
}
