package peer_test

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/peer"
)

// An offer with a place in memory that this process cannot see is moved in messages.
func TestAnOfferInMemoryThatCannotBeSeen(t *testing.T) {
	l := newLiar(t, pairtest.OneSided())
	dst := empty(t, l.all[0], heap, 100_000)
	recv, err := l.all[0].Recv(dst.Strided(), 2, 5)
	require.NoError(t, err)
	require.NoError(t, l.tell(lie{op: peer.OpOffer, request: 77, meta: join(u64(5), formAt(t, 100_000, 5, 1, 1<<40))}))
	m := l.take(peer.OpAccept)
	require.EqualValues(t, 77, m.Header.Request)
	id := binary.LittleEndian.Uint64(m.Meta)
	payload := make([]byte, 100_000)
	payload[99_999] = 7
	require.NoError(t, l.tell(lie{op: peer.OpChunk, bulk: true, request: id, payload: payload}))
	require.NoError(t, recv.Wait(pairtest.Context(t)))
	require.Equal(t, payload, dst.Bytes())
	l.requireOthersWell()
}

// receiving has peer 0 wait for the chunks of a transfer of three chunks, and returns its number for that.
func (l *liar) receiving() (peer.Handle, uint64) {
	l.t.Helper()
	n := int64(5 << 19)
	recv, err := l.all[0].Recv(empty(l.t, l.all[0], heap, n).Strided(), 2, 5)
	require.NoError(l.t, err)
	require.NoError(l.t, l.tell(lie{op: peer.OpOffer, request: 77, meta: join(u64(5), form(l.t, n))}))
	return recv, binary.LittleEndian.Uint64(l.take(peer.OpAccept).Meta)
}

// Chunks that do not come next, or have another size than was agreed, end the session and the transfer.
func TestLyingChunks(t *testing.T) {
	whole := make([]byte, 1<<20)
	for name, chunks := range map[string][]lie{
		"the last first":  {{generation: 2, payload: whole[:1<<19]}},
		"twice":           {{payload: whole}, {payload: whole}},
		"too short":       {{payload: whole[:1<<19]}},
		"too long":        {{payload: append(whole[:1<<20:1<<20], 0)}},
		"empty":           {{}},
		"one too many":    {{payload: whole}, {generation: 1, payload: whole}, {generation: 2, payload: whole[:1<<19]}, {generation: 3, payload: whole}},
		"a note":          {{op: peer.OpWritten}},
		"it has read":     {{op: peer.OpDone}},
		"a run":           {{op: peer.OpOpen, meta: u64(1, 1)}},
		"a put is served": {{op: peer.OpServe, meta: u64(1)}},
		"accepted":        {{op: peer.OpAccept, meta: join(u64(1), form(t, 5<<19))}},
		"refused":         {{op: peer.OpRefuse, meta: form(t, 5<<19)}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLiar(t, pairtest.Mem())
			recv, id := l.receiving()
			for _, x := range chunks {
				x.request = id
				if x.op == 0 {
					x.op, x.bulk = peer.OpChunk, true
				}
				if l.tell(x) != nil {
					break // the session is over already
				}
			}
			if name == "one too many" { // it is passed over, as one that has crossed the end
				require.NoError(t, recv.Wait(pairtest.Context(t)))
			} else {
				l.requireExpelled("")
				require.ErrorIs(t, recv.Wait(pairtest.Context(t)), stepvan.ErrPeerLost)
			}
			l.requireOthersWell()
		})
	}
}

// A peer that answers an offer with a view of another size, or says twice what it may say once, loses its session.
func TestLyingAnswersToAnOffer(t *testing.T) {
	for name, lies := range map[string][]lie{
		"another size":      {{op: peer.OpAccept, meta: join(u64(1), form(t, 99_999))}},
		"number 0":          {{op: peer.OpAccept, meta: join(u64(0), form(t, 100_000))}},
		"twice":             {{op: peer.OpAccept, meta: join(u64(1), form(t, 100_000))}, {op: peer.OpAccept, meta: join(u64(1), form(t, 100_000))}},
		"written":           {{op: peer.OpWritten}},
		"a chunk":           {{op: peer.OpChunk, bulk: true, payload: make([]byte, 100_000)}},
		"a run":             {{op: peer.OpReady, meta: u64(1, 1)}},
		"before its memory": {{op: peer.OpAccept, meta: join(u64(1), formAt(t, 100_000, 1, 1, -1))}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLiar(t, pairtest.Mem())
			send, err := l.all[0].Send(filled(t, l.all[0], heap, 100_000, 1).Strided(), 2, 5)
			require.NoError(t, err)
			id := l.take(peer.OpOffer).Header.Request
			for _, x := range lies {
				x.request = id
				require.NoError(t, l.tell(x))
			}
			err = send.Wait(pairtest.Context(t))
			if err == nil && name == "twice" {
				return // it had ended before the second answer came, which is late then
			}
			require.ErrorIs(t, err, stepvan.ErrPeerLost)
			l.requireExpelled("")
			l.requireOthersWell()
		})
	}
}

// The sender of chunks waits for the acknowledgement of every second one and of the last one. It asks for it at once.
func TestChunksAskForTheirAcknowledgement(t *testing.T) {
	l := newLiar(t, pairtest.Mem())
	n := int64(2<<20 + 1000)
	send, err := l.all[0].Send(filled(t, l.all[0], heap, n, 1).Strided(), 2, 5)
	require.NoError(t, err)
	id := l.take(peer.OpOffer).Header.Request
	require.NoError(t, l.tell(lie{op: peer.OpAccept, request: id, meta: join(u64(1), form(t, n))}))
	var flags []wire.Flags
	for range 3 {
		flags = append(flags, l.take(peer.OpChunk).Header.Flags&wire.FlagAckNow)
	}
	require.Equal(t, []wire.Flags{0, wire.FlagAckNow, wire.FlagAckNow}, flags)
	require.NoError(t, send.Wait(pairtest.Context(t)))
}

// One peer may not use up what this one keeps for the offers of all.
func TestOffersOfOnePeerDoNotCountForOthers(t *testing.T) {
	l := newLiar(t, pairtest.Mem())
	offer := lie{op: peer.OpOffer, meta: join(u64(5), form(t, 100_000))}
	tell := func() {
		offer.request++
		for errors.Is(l.tell(offer), stepvan.ErrWouldBlock) {
			runtime.Gosched()
		}
	}
	for range peer.MaxOffers {
		tell()
	}
	l.requireOthersWell()
	require.NoError(t, l.session.Err())
	tell()
	l.requireExpelled("transfers of a peer wait")
	l.requireOthersWell()
}
