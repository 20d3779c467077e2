package shmvan

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// sink takes events.
type sink struct{ events []van.Event }

func (s *sink) full() bool { return len(s.events) == cap(s.events) }

func (s *sink) emit(e van.Event) { s.events = append(s.events, e) }

// mostRecords is how many records of one endpoint one Poll takes, so that others have their turn.
const maxRecords = 64

// receive takes what the peer has sent. Poller only.
func (e *endpoint) receive(out *sink) {
	var err error
	for n := 0; n < maxRecords && err == nil && !out.full() && e.state.Load() == stateOpen; n++ {
		var r record
		var ok, more bool
		if e.incoming.hasSegments() {
			more, err = e.fetch(out)
		} else if r, ok, err = e.in.next(); ok {
			more, err = e.take(out, &r)
		}
		if !more {
			break
		}
	}
	if e.in.report() {
		e.wakeIfAsleep()
	}
	if err != nil {
		e.lose(&stepvan.OpError{Op: "receive", Van: name, Peer: e.name, Err: err})
	}
}

// take deals with the record at the front, and goes on behind it unless more is false.
func (e *endpoint) take(out *sink, r *record) (more bool, err error) {
	if e.incoming.slot != nil != (r.kind == kindChunk) && r.kind <= kindChunk {
		return false, &stepvan.ProtocolError{Field: "record", Reason: "a payload is interrupted"}
	}
	switch r.kind {
	case kindChunk:
		return true, e.takeChunk(out, r)
	case kindForget:
		if err := e.control(r); err != nil {
			return false, err
		}
		e.in.pass(r, false)
		return true, nil
	}
	s := e.credits.take()
	if s == nil {
		return false, nil
	}
	delivered, err := e.open(s, r)
	if !delivered {
		e.returnSlot(s)
		return false, err
	}
	if e.incoming.slot == nil {
		out.emit(van.Event{Kind: van.EventMessage, Endpoint: e.public(), Delivery: &s.delivery})
	}
	return true, nil
}

// giveBack returns a slot that was not delivered.
func (e *endpoint) returnSlot(s *slot) { s.ReleaseDelivery(&s.delivery) }

// open makes a delivery of a record. false without an error: the endpoint was closed meanwhile.
func (e *endpoint) open(s *slot, r *record) (ok bool, err error) {
	if r.kind == kindLong {
		err := e.beginLong(s, r)
		return err == nil, err
	}
	size, err := s.fill(r, e.v.opt.Limits)
	if err != nil {
		return false, err
	}
	d := &s.delivery
	switch {
	case size == 0 || r.kind == kindWritten:
		d.Written = r.kind == kindWritten
		e.in.pass(r, r.kind == kindMapped || r.kind == kindForeign)
		return e.state.Load() == stateOpen, nil
	case r.kind != kindInline:
		return e.begin(s, r, size)
	case size <= inMessage && size == d.Header.Total:
		if err := s.keep(r, size); err != nil {
			return false, err
		}
		e.in.pass(r, false)
		return e.state.Load() == stateOpen, nil
	}
	dst, err := e.place(d)
	if err != nil {
		return false, err
	}
	if !e.beginCopy() {
		return false, nil
	}
	if d.Refused == nil {
		err = s.scatterInline(r, dst, size)
	}
	clear(dst) // lets go of the memory
	e.endCopy()
	if err != nil {
		return false, err
	}
	e.in.pass(r, false)
	return true, nil
}

// enter announces that the poller writes to placed memory; false when the endpoint was closed.
func (e *endpoint) beginCopy() bool {
	e.copying.Store(true)
	if e.state.Load() != stateOpen {
		e.endCopy()
		return false
	}
	return true
}

// leave ends what enter began. What was read before cannot be read later than what comes behind, on any processor.
func (e *endpoint) endCopy() { e.copying.Store(false) }

// fill copies the head out of the ring, once, and checks it.
func (s *slot) fill(r *record, lim wire.Limits) (size uint64, err error) {
	le := binary.LittleEndian
	n := uint64(le.Uint32(r.bytes[recHead:]))
	size = le.Uint64(r.bytes[recSize:])
	if err := s.checkHeadLength(n, lim); err != nil {
		return 0, err
	}
	if n > uint64(len(r.bytes)-recBody) {
		return 0, &stepvan.ProtocolError{Field: "head", Reason: fmt.Sprintf("%d bytes do not fit the record", n)}
	}
	s.buf = append(s.buf[:0], r.bytes[recBody:recBody+n]...)
	return size, s.decode(size, lim)
}

// decode makes a delivery of the head in the slot, which comes with size bytes of payload.
func (s *slot) decode(size uint64, lim wire.Limits) error {
	d := &s.delivery
	d.Releaser = s
	if err := d.Header.Decode(s.buf, lim); err != nil {
		return err
	}
	d.Meta = s.buf[wire.HeaderSize:]
	switch {
	case int(d.Header.Meta) != len(d.Meta):
		return &stepvan.ProtocolError{Field: "meta", Reason: "length differs from what came with the header"}
	case d.Header.Payload != size:
		return &stepvan.ProtocolError{Field: "payload", Reason: "length differs from what came with the header"}
	}
	return nil
}

// place asks where the payload goes.
func (e *endpoint) place(d *van.Delivery) ([][]byte, error) {
	dst, err := e.v.opt.Placer.Place(e.public(), &d.Header, d.Meta, e.v.hold[:0])
	e.v.hold = dst[:0]
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

// body is the payload of an inline record.
func (s *slot) body(r *record, size uint64) ([]byte, error) {
	body := r.bytes[recBody+(len(s.buf)+7)&^7:]
	if size > uint64(len(body)) {
		return nil, &stepvan.ProtocolError{Field: "payload", Reason: "longer than its record"}
	}
	return body[:size], nil
}

// inMessage is the payload that is delivered with its message. Above, a second copy costs more than to ask
// where the payload belongs.
const inMessage = 1 << 10

// keep copies the payload of an inline record behind the head.
func (s *slot) keep(r *record, size uint64) error {
	body, err := s.body(r, size)
	if err != nil {
		return err
	}
	n := len(s.buf)
	s.buf = append(s.buf, body...)
	s.delivery.Meta, s.delivery.Payload = s.buf[wire.HeaderSize:n:n], s.buf[n:]
	return nil
}

// unfold copies the payload of an inline record to dst.
func (s *slot) scatterInline(r *record, dst [][]byte, size uint64) error {
	body, err := s.body(r, size)
	if err == nil {
		scatter(dst, body)
	}
	return err
}

// scatter copies from into dst and returns what of dst is left. dst has room for it.
func scatter(dst [][]byte, from []byte) [][]byte {
	for len(from) > 0 {
		n := bulk.Copy(dst[0], from)
		from = from[n:]
		if n == len(dst[0]) {
			dst = dst[1:]
		} else {
			dst[0] = dst[0][n:]
		}
	}
	return dst
}
