package shmvan

import (
	"errors"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/parts"
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
	credits *parts.Credits
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
		var version *wire.VersionError
		if errors.As(err, &version) {
			r.conn.endpoint.sender.refuse()
		}
		r.conn.lose(&stepvan.OpError{Op: "receive", Van: name, Peer: r.conn.name, Err: err})
	}
}

// open reports whether the connection has not ended: the program may close it at any time.
func (r *receiver) open() bool { return r.conn.state.Load() == stateOpen }

// take deals with the record at the front, and moves behind it unless more is false.
func (r *receiver) take(out *sink, rec *record) (more bool, err error) {
	if r.arrival.slot != nil != (rec.kind == kindChunk) && rec.kind <= kindChunk {
		return false, errs.Protocol("record", 0, "a payload is interrupted")
	}
	switch rec.kind {
	case kindChunk:
		return true, r.takeChunk(out, rec)
	case kindForget:
		if err := r.memory.forget(rec); err != nil {
			return false, err
		}
		r.advance(rec, false)
		return true, nil
	}
	s := r.credits.Take()
	if s == nil {
		return false, nil
	}
	delivered, err := r.takeMessage(s, rec)
	if !delivered {
		s.ReleaseDelivery(&s.Delivery)
		return false, err
	}
	if r.arrival.slot == nil {
		out.emit(van.Event{Kind: van.EventMessage, Endpoint: r.conn.public, Delivery: &s.Delivery})
	}
	return true, nil
}

// inMessage is the largest payload that is delivered with its message. Above, a second copy costs more than to ask
// where the payload belongs.
const inMessage = 1 << 10

// takeMessage makes a delivery of a record. false without an error: the program has closed the endpoint meanwhile.
func (r *receiver) takeMessage(s *parts.Slot, rec *record) (ok bool, err error) {
	if rec.kind == kindLong {
		err := r.beginLong(s, rec)
		return err == nil, err
	}
	head, err := rec.headBytes(r.conn.van.opt.Limits)
	if err != nil {
		return false, err
	}
	s.Bytes = append(s.Bytes, head...)
	if err := r.decode(s, rec.size); err != nil {
		return false, err
	}
	if rec.size == 0 || rec.kind == kindWritten {
		s.Delivery.Written = rec.kind == kindWritten
		r.advance(rec, rec.kind == kindMapped || rec.kind == kindForeign)
		return r.open(), nil
	}
	if rec.kind != kindInline {
		return r.beginPayload(s, rec)
	}
	return r.takeInline(s, rec)
}

// takeInline takes the payload of an inline record: with its message when it is small and whole.
func (r *receiver) takeInline(s *parts.Slot, rec *record) (ok bool, err error) {
	d := &s.Delivery
	payload, err := rec.payload()
	if err != nil {
		return false, err
	}
	if rec.size <= inMessage && rec.size == d.Header.Total {
		n := len(s.Bytes)
		s.Bytes = append(s.Bytes, payload...)
		d.Meta, d.Payload = s.Bytes[wire.HeaderSize:n:n], s.Bytes[n:]
		r.advance(rec, false)
		return r.open(), nil
	}
	if err := r.place(d); err != nil || !r.beginCopy() {
		return false, err
	}
	if d.Refused == nil {
		r.arrival.at.Scatter(r.arrival.dst, payload)
	}
	r.arrival.end()
	r.endCopy()
	r.advance(rec, false)
	return true, nil
}

// decode makes a delivery of the head in a slot, which comes with size bytes of payload.
func (r *receiver) decode(s *parts.Slot, size uint64) error {
	d := &s.Delivery
	d.Releaser = s
	if err := d.Header.Decode(s.Bytes, r.conn.van.opt.Limits); err != nil {
		return err
	}
	d.Meta = s.Bytes[wire.HeaderSize:]
	switch {
	case int(d.Header.Meta) != len(d.Meta):
		return errs.Protocol("meta", 0, "length differs from what came with the header")
	case d.Header.Payload != size:
		return errs.Protocol("payload", 0, "length differs from what came with the header")
	}
	return nil
}

// advance moves behind rec. sourced says that the peer waits for its source memory.
func (r *receiver) advance(rec *record, sourced bool) {
	r.in.advance(rec, sourced)
	r.conn.van.moved = true
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

// place asks the Placer for the memory of the payload. It keeps none of a payload that will not be written.
func (r *receiver) place(d *van.Delivery) (err error) {
	a := &r.arrival
	a.dst, err = parts.Place(r.conn.van.opt.Placer, r.conn.public, d, a.dst)
	if err != nil || d.Refused != nil || !r.open() {
		a.dst = reuse.Slice(a.dst)
	}
	return err
}
