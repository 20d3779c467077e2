package shmvan

import (
	"encoding/binary"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// inflow is a payload on its way in: streamed, or copied from where the sender says that it lies; before it the head, when
// that is long. Poller only.
type arrival struct {
	slot *slot
	kind kind      // of its record
	dst  [][]byte  // what is still to be filled
	left uint64    // bytes
	refs []segment // that are still to be read

	head    int  // bytes of a long head that are still to come
	written bool // behind that comes nothing: the payload is in granted memory

	places [][]byte  // the memory of dst, from message to message
	list   []segment // that of refs
}

// pieceBytes is the most that one visit copies: others have their turn, and Close need not wait for longer than that.
const maxPieceBytes = 4 << 20

// referred reports whether there is something to copy that needs no further record.
func (f *arrival) hasSegments() bool { return len(f.refs) > 0 }

// stop ends it, and lets go of the memory.
func (f *arrival) stop() { *f = arrival{} }

// begin starts a payload that is not in its record.
func (e *endpoint) begin(s *slot, r *record, size uint64) (ok bool, err error) {
	f := &e.incoming
	dst, err := e.place(&s.delivery)
	if err != nil {
		return false, err
	}
	if e.state.Load() != stateOpen {
		clear(dst)
		return false, nil
	}
	refuse := s.delivery.Refused != nil
	if r.kind != kindStream {
		if refuse {
			e.in.pass(r, true)
			return true, nil
		}
		if f.list, err = s.readSegments(r, size, f.list[:0]); err != nil {
			clear(dst)
			return false, err
		}
		f.refs = f.list
	}
	f.slot, f.kind, f.left = s, r.kind, size
	if !refuse {
		f.places = append(f.places[:0], dst...)
		f.dst = f.places
	}
	clear(dst)
	e.in.pass(r, false)
	return true, nil
}

// references copies the list of segments out of the ring, behind refs. Together they are the payload.
func (s *slot) readSegments(r *record, size uint64, refs []segment) ([]segment, error) {
	le := binary.LittleEndian
	body := r.bytes[recBody+(len(s.buf)+7)&^7:]
	n := uint64(le.Uint32(r.bytes[recSegs:]))
	if n > maxSegments || n*segBytes > uint64(len(body)) {
		return refs, &stepvan.ProtocolError{Field: "segments", Reason: fmt.Sprintf("%d do not fit the record", n)}
	}
	for i := range n {
		b := body[segBytes*i:]
		x := segment{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])}
		if x.n > size {
			return refs, &stepvan.ProtocolError{Field: "segments", Reason: "longer than the payload"}
		}
		if size -= x.n; x.n > 0 {
			refs = append(refs, x)
		}
	}
	if size > 0 {
		return refs, &stepvan.ProtocolError{Field: "segments", Reason: "shorter than the payload"}
	}
	return refs, nil
}

// fetch copies one piece from where the sender says that it lies. more: the payload is complete, and delivered.
func (e *endpoint) fetch(out *sink) (more bool, err error) {
	f := &e.incoming
	for budget := uint64(maxPieceBytes); f.hasSegments() && budget > 0; {
		s := f.refs[0]
		s.n = min(s.n, budget)
		if !e.beginCopy() {
			return false, nil
		}
		if f.kind == kindForeign {
			f.dst, err = e.read(s, f.dst)
		} else {
			f.dst, err = e.copyMapped(s, f.dst)
		}
		e.endCopy()
		if err != nil {
			return false, err
		}
		if e.peerWords.closed.Load() != 0 {
			return false, errHungUp // the source may have been something else already
		}
		e.v.moved = true
		budget -= s.n
		f.advance(s.n)
	}
	if f.hasSegments() {
		return false, nil
	}
	e.in.source()
	e.deliver(out)
	return true, nil
}

// advance goes on behind n bytes of the first segment.
func (f *arrival) advance(n uint64) {
	f.left -= n
	s := &f.refs[0]
	s.at, s.n = s.at+n, s.n-n
	if s.n == 0 {
		f.refs = f.refs[1:]
	}
}

// deliver reports the message whose payload is complete.
func (e *endpoint) deliver(out *sink) {
	f := &e.incoming
	s := f.slot
	clear(f.places)
	*f = arrival{places: f.places[:0], list: f.list[:0]}
	out.emit(van.Event{Kind: van.EventMessage, Endpoint: e.public(), Delivery: &s.delivery})
}

func (e *endpoint) copyMapped(s segment, dst [][]byte) ([][]byte, error) {
	f, err := e.file(s.file)
	if err != nil {
		return nil, err
	}
	from, err := f.slice(s.at, s.n)
	if err != nil {
		return nil, err
	}
	return scatter(dst, from), nil
}

// takeChunk takes a part of a payload, or of a long head, that is streamed through the ring.
func (e *endpoint) takeChunk(out *sink, r *record) error {
	f := &e.incoming
	n := binary.LittleEndian.Uint64(r.bytes[recSize:])
	if n > 0 && n <= uint64(len(r.bytes)-recBody) && f.head > 0 {
		return e.takeHead(out, r, n)
	}
	if n == 0 || n > uint64(len(r.bytes)-recBody) || n > f.left {
		return &stepvan.ProtocolError{Field: "chunk", Reason: fmt.Sprintf("%d bytes of %d", n, f.left)}
	}
	if len(f.dst) > 0 {
		if !e.beginCopy() {
			return nil
		}
		f.dst = scatter(f.dst, r.bytes[recBody:recBody+n])
		e.endCopy()
	}
	e.v.moved = true
	e.in.pass(r, false)
	if f.left -= n; f.left == 0 {
		e.deliver(out)
	}
	return nil
}
