package vantest

import (
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// The methods of this file are called with node.mu held, for every event.

func (s *side) onAccepted() {
	p := s.n.p
	if s.end.accepts++; s.end.accepts > 1 {
		p.fail(10, "one endpoint was accepted twice")
	}
	if s.delivered > 0 || s.end.lost {
		p.fail(10, "EventAccepted came after other events of the endpoint")
	}
	if s.ep.User() != nil {
		p.fail(10, "User of a fresh endpoint is %v", s.ep.User())
	}
	s.n.accepted = append(s.n.accepted, s)
}

func (s *side) onCompletion(id van.OpID, err error) {
	p := s.n.p
	o := s.issued[id]
	switch {
	case s.n.refused[id]:
		p.fail(5, "operation %d completed, though Send rejected it", id)
	case o == nil:
		p.fail(1, "operation %d completed a second time, or was never accepted on this endpoint", id)
	case s.end.lost:
		p.fail(11, "a completion came after EventLost")
	case s.end.detached:
		p.fail(11, "a completion came after EventDetached")
	case err != nil && !s.allow.faulty:
		p.fail(1, "operation %d failed though nothing is wrong: %v", id, err)
	}
	s.settle(id, o, err)
}

// settle notes that an operation is complete.
func (s *side) settle(id van.OpID, o *op, err error) {
	delete(s.issued, id)
	s.completed++
	s.lastErr = err
	if err == nil {
		s.succeeded++
	}
	// The memory is the caller's again: a van that still needs it will deliver junk.
	paint(o.head, junk)
	for _, b := range o.segments {
		paint(b, junk)
	}
	select {
	case s.room <- struct{}{}:
	default:
	}
}

func (s *side) onMessage(d *van.Delivery) {
	p := s.n.p
	if d == nil {
		p.fail(9, "EventMessage without Delivery")
	}
	h := &d.Header
	if s.allow.stranger {
		s.delivered++
		d.Release()
		return
	}
	switch {
	case s.end.lost:
		p.fail(11, "message %d was delivered after EventLost", h.Sequence)
	case s.end.closed:
		p.fail(11, "message %d was delivered after Close of the endpoint", h.Sequence)
	case s.rejected[h.Sequence] && h.Sequence < s.expect:
		p.fail(5, "message %d was delivered, though Send said ErrWouldBlock", h.Sequence)
	case s.in == 0:
		s.in = h.Request
	case h.Request != s.in:
		p.fail(4, "a message of connection %d arrived at connection %d", h.Request/2, s.in/2)
	}
	switch {
	case h.Sequence < s.expect:
		p.fail(4, "message %d arrived again, or after message %d", h.Sequence, s.expect-1)
	case h.Sequence > s.expect && !s.allow.anything:
		p.fail(4, "message %d arrived, message %d is missing", h.Sequence, s.expect)
	}
	s.expect = h.Sequence + 1
	s.delivered++
	a := &arrival{d: d, sequence: h.Sequence, where: s.places[h.Sequence]}
	delete(s.places, h.Sequence)
	a.examine(s, "delivered")
	if s.peek != nil {
		s.peek(a)
	}
	if s.hold {
		s.held = append(s.held, a)
		if len(s.held) > p.f.Credits {
			p.fail(9, "%d deliveries are unreleased, the endpoint has %d credits", len(s.held), p.f.Credits)
		}
		return
	}
	d.Release()
}

// examine compares a delivery with what was sent. It needs no lock.
func (a *arrival) examine(s *side, when string) {
	p, h := s.n.p, &a.d.Header
	if h.Sequence != a.sequence {
		p.fail(9, "the header of message %d was overwritten while the delivery was held", a.sequence)
	}
	if at := metaOf(h.Request, a.sequence).differs(a.d.Meta); at >= 0 {
		p.fail(clauseOf(when, 2), "meta of message %d (%s) differs at byte %d of %d", a.sequence, when, at, len(a.d.Meta))
	}
	if int(h.Meta) != len(a.d.Meta) {
		p.fail(3, "message %d announces %d bytes of meta and has %d", a.sequence, h.Meta, len(a.d.Meta))
	}
	if a.d.Written && (h.Payload == 0 || !s.allow.granting && !s.allow.stranger || a.where != nil || a.d.Refused != nil) {
		p.fail(8, "message %d is said to be written one-sided, and was not", a.sequence)
	}
	if a.d.Payload != nil {
		a.examineKept(s, when)
		return
	}
	if a.d.Refused != nil || h.Payload == 0 || a.where == nil {
		a.examineUnplaced(s)
		return
	}
	a.where.examine(p, h, when)
}

// examineKept looks at a message that came with its payload.
func (a *arrival) examineKept(s *side, when string) {
	p, h := s.n.p, &a.d.Header
	if most := s.n.van.Caps().InMessage; h.Payload > uint64(most) || h.Payload != h.Total || a.where != nil || a.d.Written || a.d.Refused != nil {
		p.fail(8, "message %d came with its payload of %d bytes, which is for whole ones up to %d that were neither placed nor written", a.sequence, h.Payload, most)
	}
	if uint64(len(a.d.Payload)) != h.Payload {
		p.fail(3, "message %d announces %d bytes of payload and came with %d", a.sequence, h.Payload, len(a.d.Payload))
	}
	if at := payloadOf(h.Request, a.sequence).differs(a.d.Payload); at >= 0 {
		p.fail(clauseOf(when, 3), "payload of message %d (%s) differs at byte %d of %d", a.sequence, when, at, len(a.d.Payload))
	}
}

// examineUnplaced looks at a message whose payload did not go to the Placer's memory.
func (a *arrival) examineUnplaced(s *side) {
	p := s.n.p
	switch {
	case a.d.Refused == nil && a.d.Header.Payload > 0 && !a.d.Written:
		p.fail(8, "payload of message %d was delivered without asking the Placer", a.sequence)
	case a.d.Refused != nil && (s.refuse == nil || s.refuse(a.sequence) == nil):
		p.fail(8, "message %d arrived refused, but the Placer did not refuse it: %v", a.sequence, a.d.Refused)
	}
}

// clauseOf names the clause that wrong bytes violate.
func clauseOf(when string, clause int) int {
	if when == "still held" {
		return 9
	}
	return clause
}

// open is how many operations must still complete. It leaves out the one whose Send has not returned, which may be
// complete or rejected.
func (s *side) open() int {
	n := len(s.issued)
	if s.issued[s.sending] != nil {
		n--
	}
	return n
}

// onDetached hears that the peer can reach nothing of this side any more.
func (s *side) onDetached() {
	p := s.n.p
	switch {
	case !s.n.van.Caps().OneSided:
		p.fail(11, "EventDetached of a van that is not one-sided")
	case s.end.detached:
		p.fail(11, "EventDetached came twice for one endpoint")
	case !s.end.lost && !s.end.closed && !s.allow.stormy && s.out != 0: // a case may close endpoints without a salt
		p.fail(11, "EventDetached of an endpoint that is neither lost nor closed")
	case s.open() > 0:
		p.fail(11, "EventDetached came while %d accepted operations had no completion", s.open())
	}
	s.end.detached = true
}

func (s *side) onLost(reason error) {
	p := s.n.p
	switch {
	case s.end.detached:
		p.fail(11, "EventLost came after EventDetached")
	case s.end.lost:
		p.fail(11, "EventLost came twice for one endpoint")
	case s.end.closed:
		p.fail(11, "EventLost came though the endpoint was closed on this side")
	case s.open() > 0:
		p.fail(11, "EventLost came while %d accepted operations had no completion", s.open())
	case reason == nil:
		p.fail(11, "EventLost without Err")
	case !s.allow.faulty:
		p.fail(11, "the connection was lost though nothing is wrong: %v", reason)
	}
	s.end.lost, s.end.reason = true, reason
}

// place is the Placer of this side.
func (s *side) place(h *wire.Header, meta []byte, dst [][]byte) ([][]byte, error) {
	p := s.n.p
	if s.allow.stranger {
		if h.Payload > mib {
			return dst, errNoRoom
		}
		return append(dst, make([]byte, h.Payload)), nil
	}
	switch {
	case h.Payload == 0:
		p.fail(8, "the Placer was asked for message %d, which has no payload", h.Sequence)
	case s.places[h.Sequence] != nil:
		p.fail(8, "the Placer was asked twice for message %d", h.Sequence)
	case int(h.Meta) != len(meta) || metaOf(h.Request, h.Sequence).differs(meta) >= 0:
		p.fail(8, "the Placer saw another meta than was sent with message %d", h.Sequence)
	}
	if s.refuse != nil {
		if err := s.refuse(h.Sequence); err != nil {
			return dst, err
		}
	}
	w := newPlacement(int(h.Payload), s.parts, p)
	s.places[h.Sequence] = w
	return append(dst, w.segments...), nil
}
