package peer

import (
	"encoding/binary"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/tensor"
)

// The messages, for tests that send them by hand.
const (
	OpTell     = uint8(opTell)
	OpTaken    = uint8(opTaken)
	OpOffer    = uint8(opOffer)
	OpAccept   = uint8(opAccept)
	OpRefuse   = uint8(opRefuse)
	OpChunk    = uint8(opChunk)
	OpWritten  = uint8(opWritten)
	OpDone     = uint8(opDone)
	OpFail     = uint8(opFail)
	OpQuiet    = uint8(opQuiet)
	OpOpen     = uint8(opOpen)
	OpReady    = uint8(opReady)
	OpAttach   = uint8(opAttach)
	OpAttached = uint8(opAttached)
	OpDetach   = uint8(opDetach)
	OpRevoke   = uint8(opRevoke)
	OpReleased = uint8(opReleased)
	OpGet      = uint8(opGet)
	OpPut      = uint8(opPut)
	OpServe    = uint8(opServe)
	OpNote     = uint8(opNote)
	OpMail     = uint8(opMail)
	OpLetter   = uint8(opLetter)
	OpRead     = uint8(opRead)
	OpUnknown  = OpRead + 1
)

// Kinds of letters.
const (
	LetterProposal = letterProposal
	LetterAgreed   = letterAgreed
	LetterRejected = letterRejected
	LetterPaired   = letterPaired
	MaxOffers      = maxOffers
)

// AppendForm encodes what a peer tells of a view, with a place where that is not zero.
func AppendForm(b []byte, v *tensor.Strided, grant uint64, generation uint32, offset int64) []byte {
	f := formOf(v)
	f.place.Grant, f.place.Generation, f.place.Offset = link.GrantID(grant), generation, offset
	return f.append(b)
}

// What tests of hostile peers and of deaths use.

// HoldMovers has the movers of p begin nothing until release is called.
func HoldMovers(p *Peer) (release func()) {
	held := make(chan struct{})
	t := &task{copy: func(int) { <-held }, done: func() {}}
	t.reset(p.movers.most)
	p.movers.start(t)
	return func() { close(held) }
}

// EdgesOf lists the numbers of the edges of a plan, sends first.
func EdgesOf(pl *Plan) (list []uint64) {
	for _, e := range pl.edges {
		list = append(list, uint64(e.id))
	}
	return list
}

// PiecesOf is how many pieces of a plan have been asked for and not come.
func PiecesOf(pl *Plan) (n int) {
	pl.p.mu.Lock()
	defer pl.p.mu.Unlock()
	for _, e := range pl.edges {
		if e.merges != nil && !e.out {
			n += e.merges.queue.count
		}
	}
	return n
}

// PassEarly has the plan pass chunks on although they have not landed, as a plan with this mistake would.
func (pl *Plan) PassEarly() {
	for _, e := range pl.edges {
		if e.passes() {
			landed := &edge{state: edgeRunning} // of a run in which everything has landed
			landed.flow.landed = 1 << 30
			e.relay.from = landed
		}
	}
}

// HoldMovers is HoldMovers of the peer of a plan.
func (pl *Plan) HoldMovers() (release func()) { return HoldMovers(pl.p) }

// Letters about chains, from attempt 1 to attempt 1.
func Letter(kind byte, rest []byte) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{kind}, 1)
	return append(binary.LittleEndian.AppendUint64(b, 1), rest...)
}

// Kinds of letters about chains.
const (
	LetterChains = letterChains
	LetterHops   = letterHops
)

// Place encodes the place of a receiver in a chain.
func Place(number uint32, from stepvan.Rank, next []stepvan.Rank, moves ...uint64) []byte {
	b := binary.LittleEndian.AppendUint32(nil, number)
	for i, r := range append([]stepvan.Rank{from}, next...) {
		if i == 1 {
			b = binary.AppendUvarint(b, uint64(len(next)))
		}
		b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(b, uint32(int32(r))), 1)
	}
	if len(next) == 0 {
		b = append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(moves)))
	for _, id := range moves {
		b = binary.LittleEndian.AppendUint64(b, id)
	}
	return b
}

// ReadPlaces reads places as Plan does, and ReadHops hops.
func ReadPlaces(body []byte) (n int, err error) {
	l := readLetter(body)
	n = len(l.places())
	return n, l.end()
}

func ReadHops(body []byte) (n int, err error) {
	l := readLetter(body)
	n = len(l.hops())
	return n, l.end()
}

// EdgesLeft is how many edges the run still waits for.
func (pl *Plan) EdgesLeft() (n int) {
	pl.p.mu.Lock()
	defer pl.p.mu.Unlock()
	for _, e := range pl.edges {
		if e.pending {
			n++
		}
	}
	return n
}

// Messages between peers that no program can send.
var (
	OpPull  = uint8(opPull)
	OpPiece = uint8(opPiece)
)

// SendRaw sends any message to a peer.
func SendRaw(p *Peer, to stepvan.Rank, o uint8, request uint64, meta, payload []byte) {
	p.mu.Lock()
	defer p.unlock()
	m := p.remotes[to].message(op(o), request)
	if op(o) == opPiece {
		m.out.Channel = link.ChannelPeerBulk
	}
	m.meta = append(m.meta, meta...)
	if len(payload) > 0 {
		m.list = append(m.list, payload)
	}
	p.remotes[to].send(m)
}

// Pull is the meta of OpPull.
func Pull(move uint32, lo, hi int64) []byte {
	b := binary.LittleEndian.AppendUint32(nil, move)
	b = binary.LittleEndian.AppendUint64(b, uint64(lo))
	return binary.LittleEndian.AppendUint64(b, uint64(hi))
}

// RawMove is a move as a hostile peer tells of it.
type RawMove struct {
	ID          uint64
	Wire, Merge byte
	DType       tensor.DType
	Shape       tensor.Shape
}

func (m *RawMove) append(b []byte) []byte {
	f := form{dtype: m.DType}
	f.rank = uint8(copy(f.dims[:], m.Shape.Dims()))
	f = f.contiguous()
	b = binary.LittleEndian.AppendUint64(b, m.ID)
	return f.append(append(b, m.Wire, m.Merge))
}

// ProposalOf encodes a proposal.
func ProposalOf(sends, recvs []RawMove) []byte { return ProposalWith(sends, recvs, 0) }

// ProposalWith is ProposalOf with options.
func ProposalWith(sends, recvs []RawMove, options byte) []byte {
	b := []byte{letterProposal}
	b = binary.LittleEndian.AppendUint64(b, 1)
	b = binary.LittleEndian.AppendUint64(b, 0)
	for _, list := range [][]RawMove{sends, recvs} {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for i := range list {
			b = list[i].append(b)
		}
	}
	return append(b, options)
}

// Propose sends a proposal of a plan to a peer.
func Propose(p *Peer, to stepvan.Rank, name string, body []byte) {
	p.mu.Lock()
	defer p.unlock()
	p.remotes[to].letters.post(planKey+name, body)
}

// ReadProposal reads a proposal as Plan does. It returns how many moves there are.
func ReadProposal(body []byte) (n int, err error) {
	l := readLetter(body)
	n = len(l.moves()) + len(l.moves())
	l.options()
	return n, l.end()
}

// KeptBy tells how much a peer keeps: edges, spare objects, letters, plans and grants.
func KeptBy(p *Peer) string {
	p.mu.Lock()
	defer p.unlock()
	text := fmt.Sprint(p.edges.ends.Used(), " edges, ", p.edges.ends.Len(), " slots, ", len(p.plans), " plans, ", len(p.letters.waits), " waits")
	for _, r := range p.remotes {
		text += fmt.Sprint("; ", len(r.open.edges), " open, ", r.letters.count, " letters of ", r.letters.bytes, " bytes, ", len(r.letters.came), " keys")
	}
	return text
}

// LimitMail sets the limit of unread mail at a peer that has joined. It is the same at all peers.
func LimitMail(p *Peer, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.remotes {
		r.mail.limit = bytes
	}
}
