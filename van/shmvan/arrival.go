package shmvan

import (
	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/parts"
)

// arrival is a message of several pieces on its way in. Its payload is streamed, or copied from where the sender says
// that it lies. Before it comes the head, when that is long. Poller only.
type arrival struct {
	slot    *parts.Slot
	kind    kind       // of its record
	dst     [][]byte   // where the payload goes; none when it is dropped
	at      van.Cursor // the part of dst that is still to be filled
	left    uint64     // bytes
	segs    []segment  // where the payload lies
	segment int        // the first of segs that is still to be read

	head    int  // bytes of a long head that are still to come
	written bool // no payload follows: it is in granted memory
}

// maxPieceBytes is the most that one visit copies. So other endpoints have their turn, and Close waits no longer than
// such a copy takes.
const maxPieceBytes = 4 << 20

// hasSegments reports whether there is something to copy that needs no further record.
func (a *arrival) hasSegments() bool { return a.segment < len(a.segs) }

// end releases the memory of the payload, and makes room for the next message.
func (a *arrival) end() { *a = arrival{dst: reuse.Slice(a.dst), segs: a.segs[:0]} }

// skip moves behind n bytes of the segment that is being read.
func (a *arrival) skip(n uint64) {
	a.left -= n
	s := &a.segs[a.segment]
	s.at, s.n = s.at+n, s.n-n
	if s.n == 0 {
		a.segment++
	}
}

// beginPayload starts a payload that is not in its record.
func (r *receiver) beginPayload(s *parts.Slot, rec *record) (ok bool, err error) {
	a := &r.arrival
	if err := r.place(&s.Delivery); err != nil || !r.open() {
		return false, err
	}
	if rec.kind != kindStream {
		if s.Delivery.Refused != nil {
			r.advance(rec, true)
			return true, nil
		}
		segs, err := rec.segments(a.segs)
		if err != nil {
			return false, err
		}
		a.segs = segs
	}
	a.slot, a.kind, a.left = s, rec.kind, rec.size
	r.advance(rec, false)
	return true, nil
}

// beginLong starts a message whose head follows.
func (r *receiver) beginLong(s *parts.Slot, rec *record) error {
	if err := rec.checkHead(r.conn.van.opt.Limits); err != nil {
		return err
	}
	if rec.segs > 1 {
		return errs.Protocol("record", 0, "flags %#x", rec.segs)
	}
	a := &r.arrival
	a.slot, a.kind, a.left = s, rec.kind, rec.size
	a.head, a.written = int(rec.head), rec.segs == 1
	r.advance(rec, false)
	return nil
}

// takeChunk takes a part of a payload, or of a long head, that is streamed through the ring.
func (r *receiver) takeChunk(out *sink, rec *record) error {
	a := &r.arrival
	want := a.left
	if a.head > 0 {
		want = uint64(a.head)
	}
	if rec.size == 0 || rec.size > uint64(len(rec.bytes)-recBody) || rec.size > want {
		return errs.Protocol("chunk", 0, "%d bytes of %d", rec.size, want)
	}
	chunk := rec.bytes[recBody : recBody+rec.size]
	if a.head > 0 {
		return r.takeHead(out, rec, chunk)
	}
	if len(a.dst) > 0 {
		if !r.beginCopy() {
			return nil
		}
		a.at.Scatter(a.dst, chunk)
		r.endCopy()
	}
	r.advance(rec, false)
	if a.left -= rec.size; a.left == 0 {
		r.deliver(out)
	}
	return nil
}

// takeHead takes a part of a head, and continues with the payload when the head is whole.
func (r *receiver) takeHead(out *sink, rec *record, chunk []byte) error {
	a := &r.arrival
	s := a.slot
	s.Bytes = append(s.Bytes, chunk...) // it grows with what comes
	if a.head -= len(chunk); a.head > 0 {
		r.advance(rec, false)
		return nil
	}
	if err := r.decode(s, a.left); err != nil {
		return err
	}
	if a.left > 0 && !a.written {
		if err := r.place(&s.Delivery); err != nil {
			return err
		}
	}
	if !r.open() {
		return nil
	}
	r.advance(rec, false)
	if a.left == 0 || a.written {
		s.Delivery.Written = a.written
		r.deliver(out)
	}
	return nil
}

// copySegments copies one piece from where the sender says that it lies. more: the payload is complete, and delivered.
func (r *receiver) copySegments(out *sink) (more bool, err error) {
	a := &r.arrival
	for budget := uint64(maxPieceBytes); a.hasSegments() && budget > 0; {
		s := a.segs[a.segment]
		s.n = min(s.n, budget)
		if !r.beginCopy() {
			return false, nil
		}
		if a.kind == kindForeign {
			err = r.readForeign(s)
		} else {
			err = r.copyMapped(s)
		}
		r.endCopy()
		if err != nil {
			return false, err
		}
		if r.in.peer.closed.Load() != 0 {
			return false, parts.ErrClosedByPeer // its program may have reused the source already
		}
		r.conn.van.moved = true
		budget -= s.n
		a.skip(s.n)
	}
	if a.hasSegments() {
		return false, nil
	}
	r.in.sourceRead()
	r.deliver(out)
	return true, nil
}

func (r *receiver) copyMapped(s segment) error {
	f, err := r.memory.file(s.file)
	if err != nil {
		return err
	}
	from, err := f.slice(s.at, s.n)
	a := &r.arrival
	for err == nil && len(from) > 0 {
		to := a.at.Next(a.dst, int64(len(from)))
		from = from[bulk.CopyPart(to, from, int64(a.slot.Delivery.Header.Total)):]
	}
	return err
}

// deliver reports the message whose payload is complete.
func (r *receiver) deliver(out *sink) {
	s := r.arrival.slot
	r.arrival.end()
	out.emit(van.Event{Kind: van.EventMessage, Endpoint: r.conn.public, Delivery: &s.Delivery})
}
