package peer_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
)

// A plan with the liar, seen from the liar.
type lyingPlan struct {
	*liar
	plan chan error
	made *peer.Plan
	key  []byte
	from uint64 // the attempt of peer 0
	body []byte
}

// propose has peer 0 propose a plan to the liar: it sends n bytes, or receives them.
func (l *liar) propose(sends bool, n int64, where memory) *lyingPlan {
	l.t.Helper()
	x := &lyingPlan{liar: l, plan: make(chan error, 1), key: []byte("p:weights")}
	move := []peer.Move{{ID: 1, Peer: 2, View: empty(l.t, l.all[0], where, n).Strided()}}
	ctx, cancel := context.WithTimeout(context.Background(), pairtest.WaitLimit)
	l.t.Cleanup(cancel)
	go func() {
		var sent, received []peer.Move
		if sends {
			sent = move
		} else {
			received = move
		}
		pl, err := l.all[0].Plan(ctx, "weights", sent, received)
		x.made = pl
		x.plan <- err
	}()
	m := l.take(peer.OpLetter)
	require.Equal(l.t, "p:weights", string(m.Meta))
	x.body = m.Payload
	require.Equal(l.t, byte(peer.LetterProposal), m.Payload[0])
	x.from = binary.LittleEndian.Uint64(m.Payload[1:])
	return x
}

func (x *lyingPlan) letter(body []byte) {
	x.t.Helper()
	require.NoError(x.t, x.tell(lie{op: peer.OpLetter, bulk: true, meta: x.key, payload: body}))
}

// proposal is the answer of the liar: these lists of encoded moves.
func (x *lyingPlan) proposal(sends, recvs []byte) []byte {
	return join([]byte{peer.LetterProposal}, u64(1, 0), sends, recvs, []byte{0})
}

// paired says that the liar has read the proposal of peer 0.
func (x *lyingPlan) paired() lie {
	return lie{op: peer.OpLetter, bulk: true, meta: x.key, payload: join([]byte{peer.LetterPaired}, u64(1, x.from))}
}

// moves encodes moves of the given IDs and forms.
func moves(list ...[]byte) []byte {
	b := binary.AppendUvarint(nil, uint64(len(list)))
	for i, f := range list {
		b = join(b, u64(uint64(i+1)), asItIs, f)
	}
	return b
}

var none = []byte{0}

// asItIs is the type on the way and the merge of a move that has neither.
var asItIs = []byte{0, 0}

// Letters with lies end the plan with an error that names the peer. The next plan of the others works.
func TestLyingLetters(t *testing.T) {
	ok := moves(form(t, 1000))
	for name, body := range map[string]func(x *lyingPlan) []byte{
		"empty":      func(*lyingPlan) []byte { return nil },
		"cut off":    func(x *lyingPlan) []byte { return x.proposal(none, ok)[:30] },
		"too long":   func(x *lyingPlan) []byte { return append(x.proposal(none, ok), 1) },
		"many moves": func(x *lyingPlan) []byte { return x.proposal(none, binary.AppendUvarint(nil, 1<<62)) },
		"the same move twice": func(x *lyingPlan) []byte {
			return x.proposal(none, join([]byte{2}, u64(1), asItIs, form(t, 1000), u64(1), asItIs, form(t, 1000)))
		},
		"no address":        func(x *lyingPlan) []byte { return x.proposal(none, moves(overflowing())) },
		"before a grant":    func(x *lyingPlan) []byte { return x.proposal(none, moves(formAt(t, 1000, 1, 1, -1))) },
		"behind a grant":    func(x *lyingPlan) []byte { return x.proposal(none, moves(formAt(t, 1000, 1, 1, 1<<63-10))) },
		"a grant of others": func(x *lyingPlan) []byte { return x.proposal(none, moves(formAt(t, 1000, 900, 1, 0))) },
		"another size":      func(x *lyingPlan) []byte { return x.proposal(none, moves(form(t, 999))) },
		"another move":      func(x *lyingPlan) []byte { return x.proposal(none, moves(form(t, 1000), form(t, 1000))) },
		"a send besides":    func(x *lyingPlan) []byte { return x.proposal(ok, ok) },
		"a wild rejection":  func(x *lyingPlan) []byte { return join([]byte{peer.LetterRejected}, u64(1, x.from), []byte{255, 255}) },
		"a rejection": func(x *lyingPlan) []byte {
			return join([]byte{peer.LetterRejected}, u64(1, x.from), []byte{2}, []byte("no"))
		},
	} {
		for _, v := range []pairtest.Van{pairtest.Mem(), pairtest.OneSided()} {
			t.Run(fmt.Sprint(name, "/", v.Name), func(t *testing.T) {
				l := newLiar(t, v)
				x := l.propose(true, 1000, heap)
				x.letter(body(x))
				_ = x.tell(x.paired()) // the session may be over
				err := <-x.plan
				require.Error(t, err)
				require.ErrorContains(t, err, "peer 2")
				require.ErrorContains(t, err, "weights")
				l.requireOthersWell()
				_, dst, sends, recvs := pairOf(t, l.all, heap, heap, 50_000)
				plans := planEverywhere(t, l.all, "weights", sends, recvs)
				runEverywhere(t, plans, 1)
				require.NotZero(t, dst.Bytes()[100])
			})
		}
	}
}

// agreed has a plan of peer 0 and the liar agreed on. It returns the number of the edge of peer 0.
func (l *liar) agreed(sends bool, n int64) (*lyingPlan, uint64) {
	l.t.Helper()
	x := l.propose(sends, n, heap)
	sent, received := none, moves(form(l.t, n))
	if !sends {
		sent, received = received, sent
	}
	x.letter(x.proposal(sent, received))
	require.NoError(l.t, x.tell(x.paired()))
	m := l.take(peer.OpLetter)
	require.Equal(l.t, byte(peer.LetterPaired), m.Payload[0])
	require.Equal(l.t, u64(x.from, 1), m.Payload[1:])
	m = l.take(peer.OpLetter)
	require.Equal(l.t, byte(peer.LetterAgreed), m.Payload[0])
	out, in := binary.LittleEndian.Uint64(m.Payload[17:]), binary.LittleEndian.Uint64(m.Payload[25:])
	// The other end of its edge out is that for what the liar receives.
	body := join([]byte{peer.LetterAgreed}, u64(1, x.from))
	if sends {
		body = join(body, u64(0, 44))
	} else {
		body = join(body, u64(44, 0))
	}
	x.letter(body)
	require.NoError(l.t, <-x.plan)
	l.t.Cleanup(func() { _ = x.made.Close(pairtest.Context(l.t)) })
	l.edge = max(out, in)
	return x, l.edge
}

// A peer that breaks the rules of a run loses its session, and the plan ends with its name. No version is served.
func TestLyingRuns(t *testing.T) {
	const n = 3 << 20
	chunk := make([]byte, 1<<20)
	for name, c := range map[string]struct {
		sends bool // peer 0 does
		begun bool // peer 0 has begun a run
		lies  []lie
	}{
		"ready before the run":    {sends: true, lies: []lie{{op: peer.OpReady, meta: u64(44, 1)}}},
		"ready twice":             {sends: true, begun: true, lies: []lie{{op: peer.OpReady, meta: u64(44, 1)}, {op: peer.OpReady, meta: u64(44, 1)}}},
		"a receiver offers":       {sends: true, begun: true, lies: []lie{{op: peer.OpOpen, meta: u64(44, 1)}}},
		"a receiver sends":        {sends: true, begun: true, lies: []lie{{op: peer.OpChunk, bulk: true, payload: chunk}}},
		"it has read":             {sends: true, begun: true, lies: []lie{{op: peer.OpDone}}},
		"it has written":          {sends: true, begun: true, lies: []lie{{op: peer.OpWritten}}},
		"version 0":               {lies: []lie{{op: peer.OpOpen, meta: u64(44, 0)}}},
		"two versions":            {lies: []lie{{op: peer.OpOpen, meta: u64(44, 1)}, {op: peer.OpOpen, meta: u64(44, 2)}}},
		"chunks before the offer": {lies: []lie{{op: peer.OpChunk, bulk: true, payload: chunk}}},
		"an offer within a run":   {begun: true, lies: []lie{{op: peer.OpOpen, meta: u64(44, 1)}, {op: peer.OpOpen, meta: u64(44, 1)}}},
		"a chunk twice":           {begun: true, lies: []lie{{op: peer.OpOpen, meta: u64(44, 1)}, {op: peer.OpChunk, bulk: true, payload: chunk}, {op: peer.OpChunk, bulk: true, payload: chunk}}},
		"a chunk too long":        {begun: true, lies: []lie{{op: peer.OpOpen, meta: u64(44, 1)}, {op: peer.OpChunk, bulk: true, payload: chunk[:100]}}},
		"a sender is ready":       {begun: true, lies: []lie{{op: peer.OpReady, meta: u64(44, 1)}}},
		"a put of a plan":         {begun: true, lies: []lie{{op: peer.OpServe, meta: u64(44)}}},
		"an answer to no offer":   {sends: true, begun: true, lies: []lie{{op: peer.OpAccept, meta: join(u64(44), form(t, n))}}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLiar(t, pairtest.Mem())
			x, id := l.agreed(c.sends, n)
			var h peer.Handle
			if c.begun {
				var err error
				h, err = x.made.Begin(1)
				require.NoError(t, err)
			}
			for _, y := range c.lies {
				y.request = id
				if l.tell(y) != nil {
					break
				}
			}
			l.requireExpelled("")
			if c.begun {
				require.ErrorIs(t, h.Wait(pairtest.Context(t)), stepvan.ErrPeerLost)
				require.ErrorContains(t, h.Err(), "peer 2")
			}
			late, err := x.made.Begin(2)
			if err == nil { // the liar has learnt the end of the session before peer 0
				err = late.Wait(pairtest.Context(t))
			}
			require.ErrorIs(t, err, stepvan.ErrPeerLost)
			require.Zero(t, x.made.Version())
			require.NoError(t, x.made.Close(pairtest.Context(t)))
			l.requireOthersWell()
		})
	}
}
