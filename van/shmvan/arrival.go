package shmvan

import (
	"encoding/binary"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// arrival is a message of several pieces on its way in. Its payload is streamed, or copied from where the sender says
// that it lies. Before it comes the head, when that is long. Poller only.
type arrival struct {
	slot *slot
	kind kind      // of its record
	dst  [][]byte  // what is still to be filled
	left uint64    // bytes
	segs []segment // that are still to be read

	head    int  // bytes of a long head that are still to come
	written bool // no payload follows: it is in granted memory

	dstMemory  [][]byte // kept from message to message
	segsMemory []segment
}

// maxPieceBytes is the most that one visit copies. So other endpoints have their turn, and Close waits no longer than
// such a copy takes.
const maxPieceBytes = 4 << 20

// hasSegments reports whether there is something to copy that needs no further record.
func (a *arrival) hasSegments() bool { return len(a.segs) > 0 }

// reset ends it, and releases the memory.
func (a *arrival) reset() { *a = arrival{} }

// fillTo names the memory of the payload. It keeps no part of dst itself.
func (a *arrival) fillTo(dst [][]byte) {
	a.dstMemory = append(a.dstMemory[:0], dst...)
	a.dst = a.dstMemory
}

// advance moves behind n bytes of the first segment.
func (a *arrival) advance(n uint64) {
	a.left -= n
	s := &a.segs[0]
	s.at, s.n = s.at+n, s.n-n
	if s.n == 0 {
		a.segs = a.segs[1:]
	}
}

// beginPayload starts a payload that is not in its record.
func (r *receiver) beginPayload(s *slot, rec *record, size uint64) (ok bool, err error) {
	a := &r.arrival
	dst, err := r.place(&s.delivery)
	if err != nil {
		return false, err
	}
	defer clear(dst)
	if !r.open() {
		return false, nil
	}
	refuse := s.delivery.Refused != nil
	if rec.kind != kindStream {
		if refuse {
			r.in.advance(rec, true)
			return true, nil
		}
		if a.segsMemory, err = s.readSegments(rec, size, a.segsMemory[:0]); err != nil {
			return false, err
		}
		a.segs = a.segsMemory
	}
	a.slot, a.kind, a.left = s, rec.kind, size
	if !refuse {
		a.fillTo(dst)
	}
	r.in.advance(rec, false)
	return true, nil
}

// beginLong starts a message whose head follows.
func (r *receiver) beginLong(s *slot, rec *record) error {
	le := binary.LittleEndian
	n, flag, size := le.Uint32(rec.bytes[recHead:]), le.Uint32(rec.bytes[recSegs:]), le.Uint64(rec.bytes[recSize:])
	if err := checkHeadLength(uint64(n), r.conn.van.opt.Limits); err != nil {
		return err
	}
	if flag > 1 {
		return &stepvan.ProtocolError{Field: "record", Reason: fmt.Sprintf("flags %#x", flag)}
	}
	s.buf = s.buf[:0] // it grows with what comes
	a := &r.arrival
	a.slot, a.kind, a.left = s, rec.kind, size
	a.head, a.written = int(n), flag == 1
	r.in.advance(rec, false)
	return nil
}

// takeChunk takes a part of a payload, or of a long head, that is streamed through the ring.
func (r *receiver) takeChunk(out *sink, rec *record) error {
	a := &r.arrival
	n := binary.LittleEndian.Uint64(rec.bytes[recSize:])
	if n > 0 && n <= uint64(len(rec.bytes)-recBody) && a.head > 0 {
		return r.takeHead(out, rec, n)
	}
	if n == 0 || n > uint64(len(rec.bytes)-recBody) || n > a.left {
		return &stepvan.ProtocolError{Field: "chunk", Reason: fmt.Sprintf("%d bytes of %d", n, a.left)}
	}
	if len(a.dst) > 0 {
		if !r.beginCopy() {
			return nil
		}
		a.dst = scatter(a.dst, rec.bytes[recBody:recBody+n])
		r.endCopy()
	}
	r.conn.van.moved = true
	r.in.advance(rec, false)
	if a.left -= n; a.left == 0 {
		r.deliver(out)
	}
	return nil
}

// takeHead takes n bytes of a head, and continues with the payload when the head is whole.
func (r *receiver) takeHead(out *sink, rec *record, n uint64) error {
	a := &r.arrival
	if n > uint64(a.head) {
		return &stepvan.ProtocolError{Field: "chunk", Reason: fmt.Sprintf("%d bytes, and the head lacks %d", n, a.head)}
	}
	s := a.slot
	s.buf = append(s.buf, rec.bytes[recBody:recBody+n]...)
	if a.head -= int(n); a.head > 0 {
		r.conn.van.moved = true
		r.in.advance(rec, false)
		return nil
	}
	d := &s.delivery
	if err := s.decode(a.left, r.conn.van.opt.Limits); err != nil {
		return err
	}
	if a.left > 0 && !a.written {
		dst, err := r.place(d)
		if err != nil {
			return err
		}
		if r.open() && d.Refused == nil {
			a.fillTo(dst)
		}
		clear(dst)
	}
	if !r.open() {
		return nil
	}
	r.conn.van.moved = true
	r.in.advance(rec, false)
	if a.left == 0 || a.written {
		d.Written = a.written
		r.deliver(out)
	}
	return nil
}

// copySegments copies one piece from where the sender says that it lies. more: the payload is complete, and delivered.
func (r *receiver) copySegments(out *sink) (more bool, err error) {
	a := &r.arrival
	for budget := uint64(maxPieceBytes); a.hasSegments() && budget > 0; {
		s := a.segs[0]
		s.n = min(s.n, budget)
		if !r.beginCopy() {
			return false, nil
		}
		if a.kind == kindForeign {
			a.dst, err = r.readForeign(s, a.dst)
		} else {
			a.dst, err = r.copyMapped(s, a.dst)
		}
		r.endCopy()
		if err != nil {
			return false, err
		}
		if r.in.peer.closed.Load() != 0 {
			return false, errClosedByPeer // its program may have reused the source already
		}
		r.conn.van.moved = true
		budget -= s.n
		a.advance(s.n)
	}
	if a.hasSegments() {
		return false, nil
	}
	r.in.sourceRead()
	r.deliver(out)
	return true, nil
}

func (r *receiver) copyMapped(s segment, dst [][]byte) ([][]byte, error) {
	f, err := r.memory.file(s.file)
	if err != nil {
		return nil, err
	}
	from, err := f.slice(s.at, s.n)
	if err != nil {
		return nil, err
	}
	return scatter(dst, from), nil
}

// deliver reports the message whose payload is complete.
func (r *receiver) deliver(out *sink) {
	a := &r.arrival
	s := a.slot
	clear(a.dstMemory)
	*a = arrival{dstMemory: a.dstMemory[:0], segsMemory: a.segsMemory[:0]}
	out.emit(van.Event{Kind: van.EventMessage, Endpoint: r.conn.public, Delivery: &s.delivery})
}
