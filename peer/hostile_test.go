package peer_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
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
