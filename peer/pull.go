package peer

import (
	"encoding/binary"
	"unsafe"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/strided"
)

// mergeShare is what an edge of a plan brings to merges. The receiver merges out of the memory that it sees by itself.
// All else it pulls: it asks for some elements of a move, whose numbers follow the shape of the sender's view, and the
// sender answers with a piece. So the receiver bounds how much waits for its turn. Peer.mu guards it.
type mergeShare struct {
	viewed, pulled int64 // bytes, as they travel
	moves          uint32
	queue          ring[pull] // the sender: not answered; the receiver: not here yet

	// Of the sender, by the number of the move. They do not change.
	sources []pullSource
	loops   []strided.Dim
	casts   []conversion
}

// pullSource is a move of which elements are pulled.
type pullSource struct {
	at       unsafe.Pointer // the first element
	elements int64
	loops    uint32 // where they begin
	rank     uint8
	cast     uint8
}

// pull is a question for elements of a move.
type pull struct {
	edge   *edge
	move   uint32 // of the edge
	source uint32 // of merger.sources; the receiver's
	unit   uint32 // of the merger; the receiver's
	lo, hi int64
	came   bool // the receiver's, while an earlier one has not
}

// pullsAhead is how many units of a merge may be asked for at once.
const pullsAhead = 2

// ring is a queue with room for so many objects.
type ring[T any] struct {
	items        []T
	first, count int
}

// push appends an object, and reports whether there was room.
func (r *ring[T]) push(x T) bool {
	if r.count == len(r.items) {
		return false
	}
	r.items[(r.first+r.count)%len(r.items)] = x
	r.count++
	return true
}

// pop takes the first object. It stays where it is until another one takes its room.
func (r *ring[T]) pop() T { return *r.take() }

func (r *ring[T]) take() *T {
	x := &r.items[r.first]
	r.first = (r.first + 1) % len(r.items)
	r.count--
	return x
}

// arrive takes a question whose answer has come, by its place in the ring. A large piece may be placed before a small
// one is received that was sent earlier. It returns nil for a question that does not wait.
func (x *mergeShare) arrive(at int) *pull {
	r := &x.queue
	if at >= len(r.items) || (at-r.first+len(r.items))%len(r.items) >= r.count || r.items[at].came {
		return nil
	}
	q := &r.items[at]
	for q.came = true; r.count > 0 && r.items[r.first].came; {
		r.take()
	}
	return q
}

// begin prepares a run, and returns the steps that it waits for.
func (x *mergeShare) begin(out bool) edgeStep {
	x.queue.first, x.queue.count = 0, 0
	switch {
	case !out:
		return stepMerge
	case x.pulled > 0:
		return stepNote | stepStream
	}
	return stepNote
}

// addSource notes that elements of a view of this end are pulled.
func (x *mergeShare) addSource(f *form, at unsafe.Pointer, how *conversion) {
	n := nestOf(f).toStream(int64(how.wire.Size()))
	x.sources = append(x.sources, pullSource{at, f.elements(), uint32(len(x.loops)), uint8(n.rank), uint8(indexOfCast(&x.casts, how))})
	x.loops = append(x.loops, n.loops()...)
}

// indexOfCast finds a conversion in a list, or appends it.
func indexOfCast(list *[]conversion, how *conversion) int {
	for i := range *list {
		if k := &(*list)[i]; k.src == how.src && k.wire == how.wire && k.dst == how.dst && k.merge == how.merge {
			return i
		}
	}
	*list = append(*list, *how)
	return len(*list) - 1
}

// fill packs a piece.
func (x *mergeShare) fill(m *message, q *pull) {
	s := &x.sources[q.move]
	k := &x.casts[s.cast]
	size := int64(k.wire.Size())
	b := m.packed(q.edge.remote.peer, int((q.hi-q.lo)*size))
	var n nest
	n.rank = copy(n.dims[:], x.loops[s.loops:s.loops+uint32(s.rank)])
	for part := n.between(q.lo, q.hi); part.next(); {
		w := k.out.Walk(part.walk()...)
		k.out.Apply(&w, unsafe.Add(pointer(b), part.to-q.lo*size), unsafe.Add(s.at, part.from))
	}
	m.list = append(m.list, b)
}

// pulled handles a question for elements.
func (t *edgeTable) pulled(r *remote, m *link.Inbound) error {
	e, err := t.find(r, m)
	if err != nil || e == nil || e.state >= edgeFailed {
		return err
	}
	d := decode(m.Meta)
	q := pull{edge: e, move: d.u32(), lo: int64(d.u64()), hi: int64(d.u64())}
	if err := d.end(); err != nil {
		return err
	}
	x := e.merges
	if x == nil || !e.out || e.state != edgeRunning || int(q.move) >= len(x.sources) {
		return errs.Protocol("request", 56, "a peer pulls move %d of %#x, which brings it nothing to merge", q.move, m.Header.Request)
	}
	s := &x.sources[q.move]
	if size := int64(x.casts[s.cast].wire.Size()); q.lo < 0 || q.hi <= q.lo || q.hi > s.elements || q.hi-q.lo > chunkBytes/size {
		return errs.Protocol("pull", 4, "a peer pulls elements %d to %d of %d", q.lo, q.hi, s.elements)
	}
	if !x.queue.push(q) {
		return errs.Protocol("op", 7, "more than %d questions of a peer wait for their elements", len(x.queue.items))
	}
	e.pack()
	return nil
}

// ask sends the question for a piece.
func (q *pull) ask() {
	e := q.edge
	e.merges.queue.push(*q) // there is room for all that the merger asks for at once
	m := e.remote.message(opPull, e.theirs)
	m.meta = binary.LittleEndian.AppendUint32(m.meta, q.move)
	m.meta = binary.LittleEndian.AppendUint64(m.meta, uint64(q.lo))
	m.meta = binary.LittleEndian.AppendUint64(m.meta, uint64(q.hi))
	e.remote.send(m)
}

// expectPiece checks that m is the piece that was asked for first. It returns nil for a piece of an edge that has
// ended, or has failed. Under Peer.mu.
func (t *edgeTable) expectPiece(p *Peer, m *link.Inbound) (*pull, error) {
	r := p.ids[m.Session.Peer().ID]
	if r == nil || r.session != m.Session {
		return nil, nil
	}
	e, err := t.find(r, m)
	if err != nil || e == nil || e.state >= edgeFailed {
		return nil, err
	}
	if e.out || e.state != edgeRunning || e.merges == nil || e.merges.queue.count == 0 {
		return nil, errs.Protocol("request", 56, "a peer sends a piece of %#x that nobody has asked for", m.Header.Request)
	}
	q := e.merges.arrive(int(m.Header.Generation))
	if q == nil {
		return nil, errs.Protocol("generation", 64, "a peer sends piece %d, which does not come next", m.Header.Generation)
	}
	if n := q.bytes(); m.Header.Total != uint64(n) {
		return nil, errs.Protocol("total", 88, "a piece of a peer has %d bytes, want %d", m.Header.Total, n)
	}
	e.busy++
	m.User = q
	return q, nil
}

// placePiece says where a piece waits until it is merged. Under Peer.mu.
func (t *edgeTable) placePiece(p *Peer, m *link.Inbound, dst [][]byte) ([][]byte, error) {
	q, err := t.expectPiece(p, m)
	if q == nil {
		return dst, err
	}
	return append(dst, q.staging()), nil
}

// receivePiece takes a piece that is whole.
func (h bulkHandler) receivePiece(m *link.Inbound) error {
	p := h.p
	q, ok := m.User.(*pull)
	if !ok {
		if m.Refused != nil {
			return m.Refused
		}
		var err error
		if q, err = h.expectPiece(m); q == nil {
			return err
		}
	}
	copy(q.staging(), m.Payload)
	p.mu.Lock()
	defer p.unlock()
	e := q.edge
	e.unplaced()
	if e.state == edgeRunning {
		q.merger().landed(q.unit)
	}
	return nil
}

func (h bulkHandler) expectPiece(m *link.Inbound) (*pull, error) {
	h.p.mu.Lock()
	defer h.p.unlock()
	return h.p.edges.expectPiece(h.p, m)
}

// merger is what a question of this end is for.
func (q *pull) merger() *merger {
	pl, _ := q.edge.owner.(*Plan) // no other owner has merges
	return pl.merge
}

// bytes is the size of the piece.
func (q *pull) bytes() int64 {
	g := q.merger()
	return (q.hi - q.lo) * g.wire(&g.sources[q.source])
}

// staging is where the piece waits.
func (q *pull) staging() []byte {
	g := q.merger()
	return g.slotOf(q.unit)[g.sources[q.source].offset:][:q.bytes()]
}
