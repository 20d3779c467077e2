package peer_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// liar is a peer that sends what a test chooses to peer 0. Peers 0 and 1 keep the rules.
type liar struct {
	t       testing.TB
	all     []*pairtest.PeerOfCluster
	raw     *pairtest.Peer
	session *link.Session
	edge    uint64 // of peer 0, in a plan
}

func newLiar(t testing.TB, v pairtest.Van) *liar {
	t.Helper()
	l := &liar{t: t}
	l.all, l.raw = pairtest.NewPeersBeside(t, pairtest.Options{Van: v}, 2)
	require.NoError(t, l.all[0].Connect(pairtest.Context(t), 1))
	l.session = l.raw.DialPeer(t, l.all[0])
	return l
}

// lie is a message with wrong content.
type lie struct {
	bulk       bool
	op         uint8
	request    uint64
	generation uint32
	meta       []byte
	payload    []byte
}

// tell sends a message to peer 0. An error says that the session is over.
func (l *liar) tell(x lie) error {
	o := &link.Outbound{Channel: link.ChannelPeer, Op: x.op, Request: x.request, Generation: x.generation, Meta: x.meta}
	if x.bulk {
		o.Channel = link.ChannelPeerBulk
	}
	if len(x.payload) > 0 {
		o.Payload = [][]byte{x.payload}
	}
	return l.session.Send(o)
}

// requireExpelled waits until peer 0 has ended the session, and says why.
func (l *liar) requireExpelled(text string) {
	l.t.Helper()
	require.ErrorContains(l.t, l.raw.Loss(l.t), text)
}

// take waits for a message with an operation.
func (l *liar) take(op uint8) *link.Inbound {
	l.t.Helper()
	for {
		if m := l.raw.Take(l.t); m.Header.Op == op {
			return m
		}
	}
}

// requireOthersWell moves something between the others.
func (l *liar) requireOthersWell() {
	l.t.Helper()
	for _, n := range []int64{8, 100_000} {
		src, dst := filled(l.t, l.all[0], heap, n, 3), empty(l.t, l.all[1], heap, n)
		recv, err := l.all[1].Recv(dst.Strided(), 0, 99)
		require.NoError(l.t, err)
		send, err := l.all[0].Send(src.Strided(), 1, 99)
		require.NoError(l.t, err)
		require.NoError(l.t, recv.Wait(pairtest.Context(l.t)))
		require.NoError(l.t, send.Wait(pairtest.Context(l.t)))
		require.Equal(l.t, src.Bytes(), dst.Bytes())
	}
}

func u64(list ...uint64) (b []byte) {
	for _, n := range list {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

// bytesOf is a view of n bytes, to describe.
func bytesOf(t testing.TB, n int64) tensor.Strided {
	t.Helper()
	x, err := tensor.FromBytes(tensor.Uint8, tensor.ShapeOf(n), make([]byte, n))
	require.NoError(t, err)
	return x.Strided()
}

// form encodes a view of n bytes that nobody reaches.
func form(t testing.TB, n int64) []byte { return formAt(t, n, 0, 0, 0) }

// formAt encodes a view of n bytes in a grant.
func formAt(t testing.TB, n int64, grant uint64, generation uint32, offset int64) []byte {
	t.Helper()
	v := bytesOf(t, n)
	return peer.AppendForm(nil, &v, grant, generation, offset)
}

func join(parts ...[]byte) (b []byte) {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// overflowing is a form whose dimensions leave the address space.
func overflowing() []byte {
	b := []byte{byte(tensor.Uint8), 2, 0}
	for range 2 {
		b = binary.AppendUvarint(b, 1<<40)
		b = binary.AppendUvarint(b, 1<<40)
	}
	return b
}

const noSuch = 0xdead_0000_beef // a number that no peer has given

// Messages that break the rules end the session with the peer that sends them, and nothing else.
func TestLiesEndTheSession(t *testing.T) {
	for name, x := range map[string]lie{
		"unknown message":         {op: peer.OpUnknown},
		"unknown large message":   {op: 200, bulk: true},
		"tell cut off":            {op: peer.OpTell, meta: u64(1)},
		"tell too long":           {op: peer.OpTell, meta: append(u64(1), byte(tensor.Uint8), 0)},
		"tell of no type":         {op: peer.OpTell, meta: append(u64(1), 200), payload: make([]byte, 8)},
		"tell of half an element": {op: peer.OpTell, meta: append(u64(1), byte(tensor.Float64)), payload: make([]byte, 9)},
		"tell too large":          {op: peer.OpTell, meta: append(u64(1), byte(tensor.Uint8)), payload: make([]byte, 100_000)},
		"taken of nothing":        {op: peer.OpTaken, generation: 1},
		"offer cut off":           {op: peer.OpOffer, request: 1, meta: u64(1)},
		"offer without number":    {op: peer.OpOffer, meta: join(u64(1), form(t, 100_000))},
		"offer of no address":     {op: peer.OpOffer, request: 1, meta: join(u64(1), overflowing())},
		"offer before a grant":    {op: peer.OpOffer, request: 1, meta: join(u64(1), formAt(t, 100_000, 1, 1, -5))},
		"offer behind a grant":    {op: peer.OpOffer, request: 1, meta: join(u64(1), formAt(t, 100_000, 1, 1, 1<<63-10))},
		"accept of nothing":       {op: peer.OpAccept, request: noSuch, meta: join(u64(1), form(t, 8))},
		"refusal of nothing":      {op: peer.OpRefuse, request: noSuch, meta: form(t, 8)},
		"chunk of nothing":        {op: peer.OpChunk, bulk: true, request: noSuch, payload: make([]byte, 8)},
		"large chunk of nothing":  {op: peer.OpChunk, bulk: true, request: noSuch, payload: make([]byte, 1<<20)},
		"written of nothing":      {op: peer.OpWritten, request: noSuch},
		"done of nothing":         {op: peer.OpDone, request: noSuch},
		"done of number 0":        {op: peer.OpDone},
		"quiet of nothing":        {op: peer.OpQuiet, request: noSuch},
		"failure of nothing":      {op: peer.OpFail, request: noSuch, meta: append(u64(1), 0, 0, 0)},
		"open of nothing":         {op: peer.OpOpen, request: noSuch, meta: u64(1, 1)},
		"ready of nothing":        {op: peer.OpReady, request: noSuch, meta: u64(1, 1)},
		"open cut off":            {op: peer.OpOpen, request: 1, meta: u64(1)},
		"attach cut off":          {op: peer.OpAttach, request: 1, meta: u64(1)},
		"attached to nothing":     {op: peer.OpAttached, request: noSuch, meta: join([]byte{1}, form(t, 8))},
		"detached from nothing":   {op: peer.OpDetach, request: noSuch, meta: []byte{0, 0}},
		"release of nothing":      {op: peer.OpReleased, request: noSuch},
		"get cut off":             {op: peer.OpGet, request: 1, meta: u64(1)},
		"put of no address":       {op: peer.OpPut, request: 1, meta: join(u64(1), make([]byte, 16), overflowing(), []byte{0, 0})},
		"serve of nothing":        {op: peer.OpServe, request: noSuch, meta: u64(1)},
		"note with a short key":   {op: peer.OpNote, request: 1, meta: u64(1)},
		"note too large":          {op: peer.OpNote, request: 1, meta: u64(1, 2), payload: make([]byte, peer.MaxMail+1)},
		"mail too large":          {op: peer.OpMail, payload: make([]byte, peer.MaxMail+1)},
		"mail read, never sent":   {op: peer.OpRead, request: 1},
		"mail unread, too much":   {op: peer.OpRead, request: 1 << 63},
		"mail on a long topic":    {op: peer.OpMail, meta: make([]byte, 129)},
		"letter without a key":    {op: peer.OpLetter, bulk: true},
		"letter with a long key":  {op: peer.OpLetter, bulk: true, meta: make([]byte, 600)},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []pairtest.Van{pairtest.Mem(), pairtest.OneSided()} {
				l := newLiar(t, v)
				recv, err := l.all[0].Recv(empty(t, l.all[0], heap, 100_000).Strided(), 2, 5)
				require.NoError(t, err)
				require.NoError(t, l.tell(x))
				l.requireExpelled("")
				require.ErrorIs(t, recv.Wait(pairtest.Context(t)), stepvan.ErrPeerLost)
				require.ErrorContains(t, recv.Err(), "peer 2")
				l.requireOthersWell()
			}
		})
	}
}

// A peer hears once what was read of its mail, and sends no more than has room.
func TestLiesAboutMail(t *testing.T) {
	ask := lie{op: peer.OpRead, generation: 1}
	large := lie{op: peer.OpMail, meta: []byte("topic"), payload: make([]byte, peer.MaxMail)}
	for _, c := range []struct {
		name string
		lie  lie
		room int // how many of them break no rule
		want string
	}{
		{"asks twice", ask, 1, "asks twice"},
		{"more than has room", large, mailLimit / (peer.MaxMail + 5), `nobody listens to "topic"`},
		{"more that is empty", lie{op: peer.OpMail}, mailLimit >> 10, `nobody listens to ""`},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLiar(t, pairtest.Mem())
			peer.LimitMail(l.all[0].Peer, mailLimit)
			for range c.room {
				l.tellAll(c.lie)
			}
			l.tellAll(ask) // or again
			if c.room > 1 {
				require.Zero(t, l.take(peer.OpRead).Header.Generation, "it is an answer")
				l.tellAll(c.lie)
			}
			l.requireExpelled(c.want)
			l.requireOthersWell()
		})
	}
}

// tellAll is tell that waits for room.
func (l *liar) tellAll(x lie) {
	l.t.Helper()
	until(l.t, l.all, func() bool {
		err := l.tell(x)
		if !errors.Is(err, stepvan.ErrWouldBlock) {
			require.NoError(l.t, err)
		}
		return err == nil
	})
}

// What a peer says of something that has ended is passed over: it may have crossed the end on its way.
func TestLateMessagesArePassedOver(t *testing.T) {
	l := newLiar(t, pairtest.Mem())
	send, err := l.all[0].Send(filled(t, l.all[0], heap, 100_000, 1).Strided(), 2, 5)
	require.NoError(t, err)
	offer := l.take(peer.OpOffer)
	require.NoError(t, l.tell(lie{op: peer.OpRefuse, request: offer.Header.Request, meta: form(t, 99)}))
	var mismatch *peer.MismatchError
	require.ErrorAs(t, send.Wait(pairtest.Context(t)), &mismatch)
	for _, x := range []lie{
		{op: peer.OpAccept, meta: join(u64(1), form(t, 100_000))},
		{op: peer.OpRefuse, meta: form(t, 99)},
		{op: peer.OpDone}, {op: peer.OpWritten}, {op: peer.OpQuiet},
		{op: peer.OpServe, meta: u64(1)},
		{op: peer.OpChunk, bulk: true, payload: make([]byte, 8)},
		{op: peer.OpChunk, bulk: true, payload: make([]byte, 1<<20)},
		{op: peer.OpReady, meta: u64(7, 1)},
		{op: peer.OpFail, meta: append(u64(9), 0, 0, 0)},
		{op: peer.OpFail, meta: append(u64(0), 0, 0, 0)},
	} {
		x.request = offer.Header.Request
		require.NoError(t, l.tell(x))
	}
	m := l.take(peer.OpFail)
	require.EqualValues(t, 7, m.Header.Request, "a run of what is over is refused")
	m = l.take(peer.OpQuiet)
	require.EqualValues(t, 9, m.Header.Request, "it touches nothing")
	// And nothing else, above all no answer to number 0.
	require.NoError(t, l.tell(lie{op: peer.OpFail, request: offer.Header.Request, meta: append(u64(10), 0, 0, 0)}))
	require.EqualValues(t, 10, l.raw.Take(t).Header.Request)
	l.requireOthersWell()
}

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

// The number of another peer's edge, or of another kind of thing, is not this peer's to name.
func TestNumbersOfOthers(t *testing.T) {
	l := newLiar(t, pairtest.Mem())
	send, err := l.all[0].Send(filled(t, l.all[0], heap, 100_000, 1).Strided(), 1, 5) // the others' business
	require.NoError(t, err)
	for index := range uint64(4) {
		if l.tell(lie{op: peer.OpRefuse, request: 1<<32 | index, meta: form(t, 1)}) != nil {
			break
		}
	}
	l.requireExpelled("")
	recv, err := l.all[1].Recv(empty(t, l.all[1], heap, 100_000).Strided(), 0, 5)
	require.NoError(t, err)
	require.NoError(t, recv.Wait(pairtest.Context(t)))
	require.NoError(t, send.Wait(pairtest.Context(t)), "nothing of others fails")
}

// Windows refuse what a peer may not do, and keep its session: a token may be old. Lies about windows of the liar fail
// only what uses them.
func TestLiesAboutWindows(t *testing.T) {
	l := newLiar(t, pairtest.OneSided())
	x := filled(t, l.all[0], shared, 1000, 1)
	w := expose(t, l.all[0], x.Strided(), peer.WindowOptions{})
	token := w.Token()
	window, key := binary.LittleEndian.Uint64(token[8:]), token[16:]
	refused := func(o uint8, key []byte, f []byte, at ...byte) string {
		t.Helper()
		require.NoError(t, l.tell(lie{op: o, request: window, meta: join(u64(33), key, f, at)}))
		m := l.take(peer.OpFail)
		require.EqualValues(t, 33, m.Header.Request)
		return string(m.Meta[10:])
	}
	require.Contains(t, refused(peer.OpGet, make([]byte, 16), form(t, 10), 0), "no such window")
	require.Contains(t, refused(peer.OpPut, key, form(t, 10), 0), "only be read")
	require.Contains(t, refused(peer.OpGet, key, form(t, 10), binary.AppendUvarint(nil, 991)...), "window")
	require.Contains(t, refused(peer.OpGet, key, form(t, 10), binary.AppendUvarint(nil, 1<<63+7)...), "window")
	require.Contains(t, refused(peer.OpGet, key, form(t, 1001), 0), "window")
	require.NoError(t, l.tell(lie{op: peer.OpNote, request: window, meta: key}), "it is passed over")

	// A window of the liar that is not what it says.
	for name, f := range map[string][]byte{
		"of others": formAt(t, 100, 900, 1, 0), "far away": formAt(t, 100, 1, 1, 1<<50),
	} {
		var own peer.Token
		copy(own[:], token[:])
		binary.LittleEndian.PutUint32(own[4:], 2)
		binary.LittleEndian.PutUint64(own[8:], 1<<32+uint64(len(name)))
		h, err := l.all[0].Get(empty(t, l.all[0], heap, 100).Strided(), own, nil)
		require.NoError(t, err)
		m := l.take(peer.OpAttach)
		require.NoError(t, l.tell(lie{op: peer.OpAttached, request: m.Header.Request, meta: join([]byte{3}, f)}))
		get := l.take(peer.OpGet) // it cannot be seen, so its owner is asked for it
		edge := binary.LittleEndian.Uint64(get.Meta)
		require.NoError(t, l.tell(lie{op: peer.OpChunk, bulk: true, request: edge, payload: make([]byte, 100)}))
		require.NoError(t, h.Wait(pairtest.Context(t)), name)
	}
	l.requireOthersWell()
	require.NoError(t, l.tell(lie{op: peer.OpReleased, request: window}))
	l.requireExpelled("")
	l.requireOthersWell()
}

// The sender of a window's elements may not send more, or to another number.
func TestLyingPuts(t *testing.T) {
	l := newLiar(t, pairtest.Mem())
	x := filled(t, l.all[0], heap, 100_000, 1)
	w := expose(t, l.all[0], x.Strided(), peer.WindowOptions{Rights: peer.RightRead | peer.RightWrite})
	token := w.Token()
	window, key := binary.LittleEndian.Uint64(token[8:]), token[16:]
	require.NoError(t, l.tell(lie{op: peer.OpPut, request: window, meta: join(u64(33), key, form(t, 50_000), binary.AppendUvarint(nil, 10))}))
	edge := binary.LittleEndian.Uint64(l.take(peer.OpServe).Meta)
	before := append([]byte(nil), x.Bytes()...)
	require.NoError(t, l.tell(lie{op: peer.OpChunk, bulk: true, request: edge, payload: make([]byte, 50_001)}))
	l.requireExpelled("")
	require.Equal(t, before, x.Bytes(), "nothing was written")
	l.requireOthersWell()
}
