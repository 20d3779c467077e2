package vantest

import (
	"math/rand/v2"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// books are what is known about one endpoint: what was sent and what arrived, how the connection ended, and what the
// case allows. Guarded by node.mu. The methods of this file are called with it held, for every event.
type books struct {
	t     *trial
	ep    van.Endpoint
	caps  van.Caps
	out   outgoing
	in    incoming
	end   ending
	allow allowance
}

// outgoing is what this side has sent.
type outgoing struct {
	salt      uint64
	next      uint64                // sequence of the next message
	refused   []byte                // its payload, while the van has no room for it
	sent      int                   // accepted
	issued    map[van.OpID][][]byte // operations without completion, with their source memory
	rejected  map[van.OpID]bool     // by Send
	sending   van.OpID              // whose Send has not returned
	completed int
	succeeded int           // completed without error
	room      chan struct{} // a completion arrived
	rng       *rand.Rand    // of the goroutine that sends
	lastErr   error         // of the last completion
}

// incoming is what has arrived at this side.
type incoming struct {
	salt      uint64 // 0 until known
	expect    uint64 // sequence of the next message
	delivered int
	hold      bool // keep deliveries
	held      []*arrival
	places    map[uint64]*placement // by sequence, until the delivery
	parts     int                   // segments that a payload is placed into
	refuse    func(sequence uint64) error
	peek      func(*arrival) // looks at every message
}

// ending is how the life of an endpoint began and ended.
type ending struct {
	accepts  int
	lost     bool
	detached bool // EventDetached has come
	reason   error
	closed   bool // on this side
}

// allowance is what a case permits that the suite otherwise reports.
type allowance struct {
	grants   bool // payload may arrive through a grant
	failures bool // operations may fail
	gaps     bool // messages may be missing: the peer sends what must fail
	closes   bool // many goroutines close the endpoint
	hostile  bool // the peer says anything; the suite does not compare its messages
}

// arrival is a delivered message.
type arrival struct {
	*van.Delivery
	sequence uint64
	where    *placement
}

func (b *books) onAccepted() {
	if b.end.accepts++; b.end.accepts > 1 {
		b.t.fail(10, "one endpoint was accepted twice")
	}
	if b.in.delivered > 0 || b.end.lost {
		b.t.fail(10, "EventAccepted came after other events of the endpoint")
	}
	if b.ep.User() != nil {
		b.t.fail(10, "User of a fresh endpoint is %v", b.ep.User())
	}
}

func (b *books) onCompletion(id van.OpID, err error) {
	_, open := b.out.issued[id]
	switch {
	case b.out.rejected[id]:
		b.t.fail(5, "operation %d completed, though Send rejected it", id)
	case !open:
		b.t.fail(1, "operation %d completed a second time, or was never accepted on this endpoint", id)
	case b.end.lost:
		b.t.fail(11, "a completion came after EventLost")
	case b.end.detached:
		b.t.fail(11, "a completion came after EventDetached")
	case err != nil && !b.allow.failures:
		b.t.fail(1, "operation %d failed though nothing is wrong: %v", id, err)
	}
	b.out.settle(id, err)
}

// settle notes that an operation is complete. The memory is the caller's again. A van that still needs it delivers
// junk.
func (o *outgoing) settle(id van.OpID, err error) {
	paint(junk, o.issued[id]...)
	delete(o.issued, id)
	o.completed++
	o.lastErr = err
	if err == nil {
		o.succeeded++
	}
	notify(o.room)
}

// open is how many operations must still complete. It leaves out the one whose Send has not returned, which may be
// complete or rejected.
func (o *outgoing) open() int {
	n := len(o.issued)
	if _, ok := o.issued[o.sending]; ok {
		n--
	}
	return n
}

func (b *books) onMessage(d *van.Delivery) {
	if d == nil {
		b.t.fail(9, "EventMessage without Delivery")
	}
	h := &d.Header
	if b.allow.hostile {
		b.in.delivered++
		d.Release()
		return
	}
	switch {
	case b.end.lost:
		b.t.fail(11, "message %d was delivered after EventLost", h.Sequence)
	case b.end.closed:
		b.t.fail(11, "message %d was delivered after Close of the endpoint", h.Sequence)
	case b.in.salt == 0:
		b.in.salt = h.Request
	case h.Request != b.in.salt:
		b.t.fail(4, "a message of connection %d arrived at connection %d", h.Request/2, b.in.salt/2)
	}
	switch {
	case h.Sequence < b.in.expect:
		b.t.fail(4, "message %d arrived again, or after message %d", h.Sequence, b.in.expect-1)
	case h.Sequence > b.in.expect && !b.allow.gaps:
		b.t.fail(4, "message %d arrived, message %d is missing", h.Sequence, b.in.expect)
	}
	b.in.expect = h.Sequence + 1
	b.in.delivered++
	a := &arrival{Delivery: d, sequence: h.Sequence, where: b.in.places[h.Sequence]}
	delete(b.in.places, h.Sequence)
	a.examine(b, "delivered")
	if b.in.peek != nil {
		b.in.peek(a)
	}
	if b.in.hold {
		b.in.held = append(b.in.held, a)
		if len(b.in.held) > b.t.f.Credits {
			b.t.fail(9, "%d deliveries are unreleased, the endpoint has %d credits", len(b.in.held), b.t.f.Credits)
		}
		return
	}
	d.Release()
}

// examine compares a delivery with what was sent. It needs no lock.
func (a *arrival) examine(b *books, when string) {
	h := &a.Header
	if h.Sequence != a.sequence {
		b.t.fail(9, "the header of message %d was overwritten while the delivery was held", a.sequence)
	}
	a.compare(b, when, 2, "meta", metaOf(h.Request, a.sequence), a.Meta, uint64(h.Meta))
	if a.Written && (h.Payload == 0 || !b.allow.grants || a.where != nil || a.Refused != nil) {
		b.t.fail(8, "message %d is said to be written one-sided, and was not", a.sequence)
	}
	if a.Payload != nil && a.Written {
		if n := len(a.Payload); !b.caps.Offload || int64(n) > b.caps.InMessage || uint64(n) > h.Payload {
			b.t.fail(8, "%d bytes of message %d travelled with its head, the van takes %d", n, a.sequence, b.caps.InMessage)
		}
		return // the case knows which bytes
	}
	if a.Payload != nil {
		a.examineKept(b, when)
		return
	}
	if a.Refused != nil || h.Payload == 0 || a.where == nil {
		a.examineUnplaced(b)
		return
	}
	a.where.examine(b.t, h, when)
}

// examineKept looks at a message that came with its payload.
func (a *arrival) examineKept(b *books, when string) {
	h := &a.Header
	if most := b.caps.InMessage; h.Payload > uint64(most) || h.Payload != h.Total || a.where != nil || a.Refused != nil {
		b.t.fail(8, "message %d came with its payload of %d bytes, which is for whole ones up to %d that were neither placed nor written", a.sequence, h.Payload, most)
	}
	a.compare(b, when, 3, "payload", payloadOf(h.Request, a.sequence), a.Payload, h.Payload)
}

// compare fails unless the message has the bytes that were sent, as many as its header announces.
func (a *arrival) compare(b *books, when string, clause int, what string, want stream, got []byte, announced uint64) {
	if uint64(len(got)) != announced {
		b.t.fail(3, "message %d announces %d bytes of %s and has %d", a.sequence, announced, what, len(got))
	}
	if at := want.differs(got); at >= 0 {
		b.t.fail(clauseOf(when, clause), "%s of message %d (%s) differs at byte %d of %d", what, a.sequence, when, at, len(got))
	}
}

// examineUnplaced looks at a message whose payload did not go to the Placer's memory.
func (a *arrival) examineUnplaced(b *books) {
	switch {
	case a.Refused == nil && a.Header.Payload > 0 && !a.Written:
		b.t.fail(8, "payload of message %d was delivered without asking the Placer", a.sequence)
	case a.Refused != nil && (b.in.refuse == nil || b.in.refuse(a.sequence) == nil):
		b.t.fail(8, "message %d arrived refused, but the Placer did not refuse it: %v", a.sequence, a.Refused)
	}
}

// clauseOf names the clause that wrong bytes violate.
func clauseOf(when string, clause int) int {
	if when == "still held" {
		return 9
	}
	return clause
}

// onDetached hears that the peer can reach nothing of this side any more.
func (b *books) onDetached() {
	switch {
	case !b.caps.OneSided:
		b.t.fail(11, "EventDetached of a van that is not one-sided")
	case b.end.detached:
		b.t.fail(11, "EventDetached came twice for one endpoint")
	case !b.end.lost && !b.end.closed && !b.allow.closes && b.out.salt != 0: // a case may close endpoints without a salt
		b.t.fail(11, "EventDetached of an endpoint that is neither lost nor closed")
	case b.out.open() > 0:
		b.t.fail(11, "EventDetached came while %d accepted operations had no completion", b.out.open())
	}
	b.end.detached = true
}

func (b *books) onLost(reason error) {
	switch {
	case b.end.detached:
		b.t.fail(11, "EventLost came after EventDetached")
	case b.end.lost:
		b.t.fail(11, "EventLost came twice for one endpoint")
	case b.end.closed:
		b.t.fail(11, "EventLost came though the endpoint was closed on this side")
	case b.out.open() > 0:
		b.t.fail(11, "EventLost came while %d accepted operations had no completion", b.out.open())
	case reason == nil:
		b.t.fail(11, "EventLost without Err")
	case !b.allow.failures:
		b.t.fail(11, "the connection was lost though nothing is wrong: %v", reason)
	}
	b.end.lost, b.end.reason = true, reason
}

// place is the Placer of this side.
func (b *books) place(h *wire.Header, meta []byte, dst [][]byte) ([][]byte, error) {
	if b.allow.hostile {
		if h.Payload > mib {
			return dst, errNoRoom
		}
		return append(dst, make([]byte, h.Payload)), nil
	}
	switch {
	case h.Payload == 0:
		b.t.fail(8, "the Placer was asked for message %d, which has no payload", h.Sequence)
	case b.in.places[h.Sequence] != nil:
		b.t.fail(8, "the Placer was asked twice for message %d", h.Sequence)
	case int(h.Meta) != len(meta) || metaOf(h.Request, h.Sequence).differs(meta) >= 0:
		b.t.fail(8, "the Placer saw another meta than was sent with message %d", h.Sequence)
	}
	if b.in.refuse != nil {
		if err := b.in.refuse(h.Sequence); err != nil {
			return dst, err
		}
	}
	w := newPlacement(int(h.Payload), b.in.parts)
	b.in.places[h.Sequence] = w
	return append(dst, w.segments...), nil
}
