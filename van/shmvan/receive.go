package shmvan

import (
	"errors"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van"
)

// sink takes events.
type sink struct{ events []van.Event }

func (s *sink) full() bool { return len(s.events) == cap(s.events) }

func (s *sink) emit(e van.Event) { s.events = append(s.events, e) }

// maxRecords is how many records of one endpoint one Poll takes, so that other endpoints have their turn.
const maxRecords = 64

// receiver is the receiving side of an endpoint. Poller only.
type receiver struct {
	conn    *connection
	memory  *peerMemory
	in      consumer
	arrival arrival
	credits credits
	copying atomic.Bool // the poller writes to placed memory
	canRead bool        // the peer's memory, with process_vm_readv
}

// receive takes what the peer has sent.
func (r *receiver) receive(out *sink) {
	var err error
	for n := 0; n < maxRecords && err == nil && !out.full() && r.open(); n++ {
		var rec record
		var ok, more bool
		if r.arrival.hasSegments() {
			more, err = r.copySegments(out)
		} else if rec, ok, err = r.in.next(); ok {
			more, err = r.take(out, &rec)
		}
		if !more {
			break
		}
	}
	if r.in.report() {
		r.conn.wakeIfAsleep()
	}
	if err != nil {
		r.conn.lose(&stepvan.OpError{Op: "receive", Van: name, Peer: r.conn.name, Err: err})
	}
}

// open reports whether the connection has not ended: the program may close it at any time.
func (r *receiver) open() bool { return r.conn.state.Load() == stateOpen }

// take deals with the record at the front, and moves behind it unless more is false.
func (r *receiver) take(out *sink, rec *record) (more bool, err error) {
	if r.arrival.slot != nil != (rec.kind == kindChunk) && rec.kind <= kindChunk {
		return false, &stepvan.ProtocolError{Field: "record", Reason: "a payload is interrupted"}
	}
	switch rec.kind {
	case kindChunk:
		return true, r.takeChunk(out, rec)
	case kindForget:
		if err := r.memory.forget(rec); err != nil {
			return false, err
		}
		r.in.advance(rec, false)
		return true, nil
	}
	s := r.credits.take()
	if s == nil {
		return false, nil
	}
	delivered, err := r.takeMessage(s, rec)
	if !delivered {
		s.ReleaseDelivery(&s.delivery)
		return false, err
	}
	if r.arrival.slot == nil {
		out.emit(van.Event{Kind: van.EventMessage, Endpoint: r.conn.public, Delivery: &s.delivery})
	}
	return true, nil
}

// takeMessage makes a delivery of a record. false without an error: the program has closed the endpoint meanwhile.
func (r *receiver) takeMessage(s *slot, rec *record) (ok bool, err error) {
	if rec.kind == kindLong {
		err := r.beginLong(s, rec)
		return err == nil, err
	}
	size, err := s.readHead(rec, r.conn.van.opt.Limits)
	if err != nil {
		return false, err
	}
	d := &s.delivery
	switch {
	case size == 0 || rec.kind == kindWritten:
		d.Written = rec.kind == kindWritten
		r.in.advance(rec, rec.kind == kindMapped || rec.kind == kindForeign)
		return r.open(), nil
	case rec.kind != kindInline:
		return r.beginPayload(s, rec, size)
	case size <= inMessage && size == d.Header.Total:
		if err := s.appendPayload(rec, size); err != nil {
			return false, err
		}
		r.in.advance(rec, false)
		return r.open(), nil
	}
	dst, err := r.place(d)
	if err != nil {
		return false, err
	}
	if !r.beginCopy() {
		return false, nil
	}
	if d.Refused == nil {
		err = s.scatterInline(rec, dst, size)
	}
	clear(dst) // releases the memory
	r.endCopy()
	if err != nil {
		return false, err
	}
	r.in.advance(rec, false)
	return true, nil
}

// beginCopy announces that the poller writes to placed memory; false when the program has closed the endpoint.
func (r *receiver) beginCopy() bool {
	r.copying.Store(true)
	if !r.open() {
		r.endCopy()
		return false
	}
	return true
}

// endCopy ends what beginCopy began. No processor moves a read from before it to behind it.
func (r *receiver) endCopy() { r.copying.Store(false) }

// place asks the Placer for the memory of the payload.
func (r *receiver) place(d *van.Delivery) ([][]byte, error) {
	v := r.conn.van
	dst, err := v.opt.Placer.Place(r.conn.public, &d.Header, d.Meta, v.placed[:0])
	v.placed = dst[:0]
	if err == nil {
		var n uint64
		for _, b := range dst {
			n += uint64(len(b))
		}
		if n != d.Header.Payload {
			err = errs.Invalid("shmvan: the Placer gave %d bytes for a payload of %d", n, d.Header.Payload)
		}
	}
	if err != nil {
		var broken *stepvan.ProtocolError // here, as it is on the heap
		if errors.As(err, &broken) {
			return nil, err
		}
	}
	d.Refused = err
	return dst, nil
}
