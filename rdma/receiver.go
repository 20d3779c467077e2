package rdma

import (
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/parts"
)

// sink takes events.
type sink struct{ events []van.Event }

func (s *sink) full() bool { return len(s.events) == cap(s.events) }

func (s *sink) emit(e van.Event) { s.events = append(s.events, e) }

// maxSteps is how many slots of one endpoint one Poll takes, so that other endpoints have their turn.
const maxSteps = 64

// receiver is the receiving side of an endpoint. The poller's.
type receiver struct {
	e       *endpoint
	broken  bool // the peer has broken the protocol: nothing more of it counts
	arrived slotQueue
	arrival arrival
	fetch   fetch
	fetched uint32 // payloads of this side that the peer has fetched, as far as was heard
	credits *parts.Credits
}

// filled is a slot with a message, or a part of one.
type filled struct {
	rail   *rail  // nil: the bytes are a copy
	slot   int    // of it, to be posted again
	bytes  []byte // prefix and body
	prefix prefix
}

// copy has the slot posted again, though its message is not taken.
func (f *filled) copy() {
	f.bytes = slices.Clone(f.bytes)
	f.giveBack()
}

// giveBack has the slot posted again.
func (f *filled) giveBack() {
	if r := f.rail; r != nil {
		r.held--
		r.again.slots = append(r.again.slots, f.slot)
		r.again.messages++
		f.rail = nil
	}
}

// slotQueue has the slots that have come and were not taken. They are taken in the order of their numbers, whatever
// rail brought them.
type slotQueue struct {
	ring []filled // a power of two
	next uint32   // number of the slot that is taken next
}

func (q *slotQueue) init(slots int) {
	size := 1
	for size < slots {
		size *= 2
	}
	q.ring, q.next = make([]filled, size), 1
}

func (q *slotQueue) at(number uint32) *filled { return &q.ring[number&uint32(len(q.ring)-1)] }

// empty reports whether the slot that is taken next has not come.
func (q *slotQueue) empty() bool { return q.front().bytes == nil }

func (q *slotQueue) front() *filled { return q.at(q.next) }

// fits reports whether a slot with that number may come.
func (q *slotQueue) fits(number uint32) bool {
	return number-q.next < uint32(len(q.ring)) && q.at(number).bytes == nil
}

func (q *slotQueue) push(f filled) { *q.at(f.prefix.number) = f }

func (q *slotQueue) pop() {
	*q.front() = filled{}
	q.next++
}

// drop takes out all.
func (q *slotQueue) drop() { clear(q.ring) }

func (r *receiver) init(e *endpoint, receives int, o *Options) {
	r.e = e
	if e.several() {
		receives *= 4 * e.paths // slots, and as many copies, and those of rails that were lost
	}
	r.arrived.init(receives)
	r.credits = parts.NewCredits(o.Credits, e.note)
}

// onReceived takes the completion of a receive.
func (r *rail) onReceived(c *verbs.Completion, slot int) {
	r.outstanding.Add(-1)
	if c.Status != verbs.StatusSuccess {
		r.onFailure(c, "receive")
		return
	}
	e := r.e
	if e.in.broken || !e.enterBefore(dead) { // the peer still tells a closed endpoint what it has fetched
		return
	}
	defer e.leave()
	b, err := r.conn.slot(slot)[:min(int(c.Bytes), r.conn.slotBytes)], error(nil)
	if c.HasImmediate {
		b, err = r.conn.placeOf(c.Immediate, r.messages+1)
	}
	if err == nil {
		err = e.in.take(r, slot, b)
	}
	if err != nil {
		e.in.broken = true
		e.fail("receive", err)
	}
}

// take looks at a slot that has come. What it says of credit counts at once, and so do records.
func (r *receiver) take(from *rail, slot int, b []byte) error {
	var p prefix
	if err := p.decode(b); err != nil {
		return err
	}
	if p.isRecord() {
		if from.records++; p.number != from.records {
			return errs.Protocol("slot", 4, "record %d (want %d)", p.number, from.records)
		}
		err := r.takeRecord(from, &p, b[prefixBytes:])
		from.again.slots = append(from.again.slots, slot)
		from.again.records++
		return err
	}
	switch from.messages++; {
	case !from.ready.Load(), !from.loss.listed.Load():
		return errs.Protocol("slot", 0, "kind %d before the hello", p.kind)
	case p.kind != kindMessage && p.kind != kindPart && (p.kind != kindStripe || !r.e.several()):
		return errs.Protocol("slot", 0, "kind %d", p.kind)
	case !r.e.several() && p.number != from.messages:
		return errs.Protocol("slot", 4, "message slot %d (want %d)", p.number, from.messages)
	case from.messages-from.teller.messages.Load() > uint32(from.conn.receives-recordSlots):
		return errs.Protocol("slot", 4, "message slot %d, and credit for %d", p.number, from.messages-1)
	case !r.arrived.fits(p.number):
		return errs.Protocol("slot", 4, "message slot %d (want one of %d from %d on, once)", p.number, len(r.arrived.ring), r.arrived.next)
	}
	if err := from.credit.learn(p.messages, p.records); err != nil {
		return err
	}
	if err := r.takeGrants(&p, b[prefixBytes:]); err != nil {
		return err
	}
	if err := r.takeFetched(&p); err != nil {
		return err
	}
	f := filled{from, slot, b, p}
	from.held++
	r.arrived.push(f)
	return nil
}

// takeFetched takes the peer's word that it has fetched payloads.
func (r *receiver) takeFetched(p *prefix) error {
	if p.fetched == r.fetched {
		return nil
	}
	r.fetched = p.fetched
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	return r.e.out.takeFetched(p.fetched)
}

// takeGrants reads the grants that come with a message.
func (r *receiver) takeGrants(p *prefix, body []byte) error {
	if p.count == 0 {
		return nil
	}
	size := grantSize(r.e.out.peerKeys)
	if p.count*size > len(body) {
		return errs.Protocol("slot", 2, "%d grants in %d bytes", p.count, len(body))
	}
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	return r.e.out.peer.take(body[:p.count*size], size, len(r.e.out.control.answer))
}

// takeRecord does what a record says.
func (r *receiver) takeRecord(from *rail, p *prefix, body []byte) error {
	if p.kind == kindHello {
		return r.takeHello(from, body)
	}
	if !from.ready.Load() {
		return errs.Protocol("slot", 0, "kind %d before the hello", p.kind)
	}
	if err := from.credit.learn(p.messages, p.records); err != nil {
		return err
	}
	if err := r.takeFetched(p); err != nil {
		return err
	}
	s := &r.e.out
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	from.asked = from.asked && p.flags == flagWake
	switch p.flags {
	case flagCredit:
		return nil
	case flagWake:
		from.teller.wakeFrom = uint32(p.payload)
		from.teller.wake.Store(true)
		return nil
	case flagLoss:
		return s.order.takeLoss(from, p)
	case flagWithdraw, flagAnswer:
		return s.takeControl(p, body)
	}
	return errs.Protocol("record", 1, "flags %#x", p.flags)
}

func (r *receiver) takeHello(from *rail, body []byte) error {
	if from.ready.Load() {
		return errs.Protocol("slot", 0, "a second hello")
	}
	var h hello
	if err := h.decode(body); err != nil {
		return err
	}
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	defer r.e.introduced.Store(true)
	defer (&connecting{e: r.e, path: from.index}).tell()
	return from.takeHello(h)
}

// step delivers what has come, and reports whether there is more to deliver at once.
func (r *receiver) step(out *sink) (more bool) {
	for range maxSteps {
		if out.full() {
			return true
		}
		if r.arrival.fetching && r.e.state.Load()&dead != 0 {
			r.arrival.fetching = false // it will never be whole
			r.arrived.drop()
		}
		if r.arrival.fetching {
			if !r.continueFetch(out) {
				return false
			}
			continue
		}
		if r.arrived.empty() {
			r.spill()
			return false
		}
		if r.arrival.slot == nil {
			if r.arrival.slot = r.credits.Take(); r.arrival.slot == nil {
				return false // a release notes the endpoint
			}
		}
		if !r.e.enter() {
			return false
		}
		err := r.arrival.take(r, r.arrived.front(), out)
		r.e.leave()
		if err != nil {
			r.e.fail("receive", err)
			r.broken = true
			r.arrived.drop()
			return false
		}
		r.arrived.front().giveBack()
		r.arrived.pop()
	}
	return true
}

// spill has slots posted again while one is missing that comes before them, and may come over the same rail. Else it
// might find no credit. Nothing is copied for a peer that nobody knows.
func (r *receiver) spill() {
	all := r.e.rails.all()
	if !slices.ContainsFunc(all, isHalfHeld) || r.e.v.visitors.has(r.e) || !r.e.enterBefore(closed|dead) {
		return
	}
	defer r.e.leave()
	for _, from := range all {
		for i := uint32(1); i < uint32(len(r.arrived.ring)) && isHalfHeld(from); i++ {
			if f := r.arrived.at(r.arrived.next + i); f.rail == from {
				f.copy()
			}
		}
	}
}

// isHalfHeld reports whether more than half of the slots wait for others.
func isHalfHeld(r *rail) bool { return r.held > (r.conn.receives-recordSlots)/2 }

// continueFetch continues with a payload that is fetched, and reports whether it is whole, and its message delivered.
func (r *receiver) continueFetch(out *sink) bool {
	if !r.e.enter() {
		return false
	}
	defer r.e.leave()
	if !r.fetch.advance(r) {
		return false
	}
	r.arrival.deliver(r, out)
	return true
}

// drained reports whether everything that came was delivered, once nothing comes any more.
func (r *receiver) drained() bool { return r.arrived.empty() && !r.arrival.fetching }

// stuck reports whether what has come waits for credit.
func (r *receiver) stuck() bool {
	return !r.arrived.empty() && r.credits.Starved() && !r.arrival.fetching
}

// busy reports whether a step would do something.
func (r *receiver) busy() bool {
	return !r.arrived.empty() && !r.credits.Starved() && !r.arrival.fetching || r.e.rails.wakeDue()
}

// arrival is the message that is on its way in.
type arrival struct {
	slot     *parts.Slot
	begun    bool
	head     int    // bytes of head that are still to come
	left     uint64 // bytes of payload that are still to come
	travels  uint64 // bytes of payload that travel in slots
	written  bool   // other payload is in granted memory
	kept     bool   // the payload goes beside the meta
	list     []byte // of sources, where the payload is fetched
	fetch    bool   // it is
	fetching bool   // the list is whole, and the payload not
	dst      [][]byte
	at       van.Cursor
}

// take takes a slot of a message. The poller is between enter and leave.
func (a *arrival) take(r *receiver, f *filled, out *sink) error {
	if f.prefix.kind == kindStripe {
		return a.takeStripe(f)
	}
	body := f.bytes[prefixBytes+f.prefix.count*grantSize(r.e.out.peerKeys):]
	if err := a.begin(r, f); err != nil {
		return err
	}
	if a.head > 0 {
		n := min(a.head, len(body))
		a.slot.Bytes = append(a.slot.Bytes, body[:n]...)
		body = body[n:]
		if a.head -= n; a.head > 0 {
			return nil
		}
		if err := a.readHead(r); err != nil {
			return err
		}
	}
	if uint64(len(body)) > a.left {
		return errs.Protocol("slot", prefixBytes, "%d bytes behind the end of the message", uint64(len(body))-a.left)
	}
	a.left -= uint64(len(body))
	switch {
	case a.fetch:
		a.list = append(a.list, body...)
	case a.kept:
		a.slot.Bytes = append(a.slot.Bytes, body...)
	case len(a.dst) > 0:
		a.at.Scatter(a.dst, body)
	}
	switch {
	case a.left > 0:
	case a.fetch:
		r.fetch.rail = f.rail
		return a.beginFetch(r)
	default:
		a.deliver(r, out)
	}
	return nil
}

// takeStripe takes the slot that follows a part of a written payload. The head has a later number, so it is taken when
// all parts are there.
func (a *arrival) takeStripe(f *filled) error {
	if a.begun || len(f.bytes) != prefixBytes || f.prefix.count != 0 {
		return errs.Protocol("slot", prefixBytes, "%d bytes in a slot that follows a part", len(f.bytes)-prefixBytes)
	}
	return nil
}

// beginFetch takes the list of sources, which is whole. A refused payload is not fetched.
func (a *arrival) beginFetch(r *receiver) error {
	f := &r.fetch
	if f.rail == nil || f.rail.loss.begun.Load() {
		f.rail = r.e.rails.anyUsable()
	}
	key := 16
	if f.rail != nil && f.rail.device > 0 {
		key = sourceBytes + (f.rail.device-1)*keyBytes
	}
	if err := f.begin(a.list, a.slot.Delivery.Header.Payload, sourceSize(r.e.out.peerKeys), key); err != nil {
		return err
	}
	if a.slot.Delivery.Refused != nil {
		f.first = len(f.sources)
	}
	a.fetching = true
	return nil
}

// begin holds what a slot says of its message against what is expected.
func (a *arrival) begin(r *receiver, f *filled) error {
	p := &f.prefix
	if a.begun == (p.kind == kindMessage) {
		return errs.Protocol("slot", 0, "a message is interrupted, or continues without a beginning")
	}
	if p.kind == kindPart {
		if len(f.bytes) == prefixBytes {
			return errs.Protocol("slot", 0, "an empty part")
		}
		return nil
	}
	limit := wire.HeaderSize + uint64(r.e.v.opt.Limits.Meta)
	if p.head < wire.HeaderSize || uint64(p.head) > limit {
		return errs.Protocol("head", 16, "%d bytes (want %d to %d)", p.head, wire.HeaderSize, limit)
	}
	a.begun, a.head, a.left, a.travels = true, int(p.head), p.payload, p.payload
	a.written, a.fetch = p.flags == flagWritten, p.flags == flagFetch
	if p.flags != 0 && !a.written && !a.fetch {
		return errs.Protocol("slot", 1, "flags %#x", p.flags)
	}
	return nil
}

// readHead takes the head, which is whole, and decides where the payload goes.
func (a *arrival) readHead(r *receiver) error {
	d := &a.slot.Delivery
	b := a.slot.Bytes
	if err := d.Header.Decode(b, r.e.v.opt.Limits); err != nil {
		return err
	}
	d.Meta, d.Releaser, d.Written = b[wire.HeaderSize:], a.slot, a.written
	if int(d.Header.Meta) != len(d.Meta) {
		return &stepvan.ProtocolError{Field: "meta", Reason: "length differs from what came with the header"}
	}
	switch {
	case a.written && (a.travels > inMessage || a.travels > d.Header.Payload),
		a.fetch && (d.Header.Payload == 0 || a.travels == 0 || a.travels > uint64(maxSources*sourceSize(r.e.out.peerKeys))),
		!a.written && !a.fetch && a.travels != d.Header.Payload:
		return &stepvan.ProtocolError{Field: "payload", Reason: "length differs from what came with the header"}
	}
	if err := wire.Verify(b[:wire.HeaderSize], d.Meta); err != nil {
		return err
	}
	a.kept = a.written || !a.fetch && d.Header.Payload <= inMessage && d.Header.Payload == d.Header.Total
	if a.kept || a.travels == 0 {
		return nil
	}
	var err error
	a.dst, err = parts.Place(r.e.v.opt.Placer, r.e, d, a.dst)
	if err != nil {
		return err
	}
	if d.Refused != nil {
		clear(a.dst)
		a.dst = a.dst[:0]
	}
	return nil
}

// deliver reports the message, which is whole.
func (a *arrival) deliver(r *receiver, out *sink) {
	d := &a.slot.Delivery
	d.Meta = a.slot.Bytes[wire.HeaderSize:][:d.Header.Meta]
	if a.kept && a.travels > 0 {
		d.Payload = a.slot.Bytes[wire.HeaderSize+len(d.Meta):]
	}
	if a.fetch {
		r.e.out.countFetched()
	}
	clear(a.dst)
	*a = arrival{dst: a.dst[:0], list: a.list[:0]}
	out.emit(van.Event{Kind: van.EventMessage, Endpoint: r.e, Delivery: d})
}
