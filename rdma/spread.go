package rdma

// order spreads the slots of an endpoint over several rails. Guarded by endpoint.mu.
type order struct {
	s      *sender
	number uint32 // of the last slot
	oldest uint32 // the peer has all slots before this one
	turn   int    // whose it is
	early  [maxPaths]earlyLoss
	moving []*rail // those that have failed, whose slots are to go over others
}

// stripeUnit is what the parts of a payload are multiples of.
const stripeUnit = 4 << 10

// spread adds the slots of a message to the chains of several rails, and reports whether that was all of it. A large
// payload with targets is cut over the rails: a slot follows each part, and the head comes last.
func (t *order) spread(o *operation) bool {
	s := t.s
	for parts := t.parts(o); !o.posted; parts = max(1, parts-1) {
		r, i := t.pick(true)
		if r == nil {
			return false
		}
		c := carried{buffer: i, number: t.number + 1, op: s.ops.next, from: o.mark()}
		gone := r.queue.addPart(o, o.unwritten(parts))
		c.to = o.mark()
		if gone {
			o.err, o.posted = errWithdrawn, true
		}
		if gone && !c.hasWrites() {
			r.queue.buffers.free |= 1 << uint(i)
			return true
		}
		t.number++
		p := prefix{kind: kindStripe, number: c.number}
		if !gone && o.next == len(o.writes) {
			c.bytes = s.compose(o, r, &p, r.queue.buffer(i)[prefixBytes:r.slotBytes])
		}
		if c.hasWrites() {
			o.parts++
			o.pinned = true
		}
		r.carry(c, &p)
	}
	return true
}

// carry adds a slot to the chain, and keeps it until the peer has it.
func (r *rail) carry(c carried, p *prefix) {
	r.credit.messages.take()
	c.request = r.queue.addSlot(c.buffer, p, c.bytes, c.hasWrites() && !c.complete)
	r.flight.push(c)
}

// parts is over how many rails the rest of a payload is cut.
func (t *order) parts(o *operation) int {
	e := t.s.e
	if o.unwritten(1) < int64(e.v.opt.Paths.StripeBytes) {
		return 1
	}
	return max(1, e.rails.count((*rail).usable))
}

// unwritten is how many bytes one of several parts has of what is left to write.
func (o *operation) unwritten(parts int) (n int64) {
	for i := o.next; i < len(o.writes); i++ {
		n += int64(len(o.writes[i].from)) - o.writes[i].done
	}
	if parts == 1 {
		return n
	}
	return (n/int64(parts) + stripeUnit - 1) &^ (stripeUnit - 1)
}

// addPart adds writes of a message, of at most limit bytes, and leaves room for the slot behind them. gone: the grant
// of the next one is withdrawn.
func (q *sendQueue) addPart(o *operation, limit int64) (gone bool) {
	for o.next < len(o.writes) && limit > 0 && q.requests.room() > 1 {
		w := &o.writes[o.next]
		if w.grant.gone {
			return true
		}
		n, _ := q.addWrite(w, w.done, limit)
		q.rail.e.out.written += uint64(n)
		limit -= n
		if w.done += n; w.done == int64(len(w.from)) {
			o.next++
		}
	}
	return false
}

// addAgain adds the writes between two marks. false: there is no room for all of them.
func (q *sendQueue) addAgain(o *operation, from, to mark) bool {
	n := 0
	between(o, from, to, func(_ *write, at, end int64) {
		n += int((end - at + int64(q.conn.device.maxMessage) - 1) / int64(q.conn.device.maxMessage))
	})
	if q.requests.room() <= n {
		return false
	}
	between(o, from, to, func(w *write, at, end int64) {
		for at < end {
			n, _ := q.addWrite(w, at, end-at)
			at += n
		}
	})
	return true
}

// between calls f for each segment of which something is between two marks.
func between(o *operation, from, to mark, f func(w *write, at, end int64)) {
	for i := from.write; i < len(o.writes) && i <= to.write; i++ {
		at, end := int64(0), int64(len(o.writes[i].from))
		if i == from.write {
			at = from.done
		}
		if i == to.write {
			end = to.done
		}
		if at < end {
			f(&o.writes[i], at, end)
		}
	}
}

// mark is how far the writes are.
func (o *operation) mark() mark {
	if o.next == len(o.writes) {
		return mark{write: o.next}
	}
	return mark{o.next, o.writes[o.next].done}
}

// pick returns the next rail that takes a slot, and the buffer for it, or nil. A slot that has no number yet must not
// be too far ahead of those that the peer may not have.
func (t *order) pick(unnumbered bool) (*rail, int) {
	all := t.s.e.rails.all()
	if unnumbered && !t.inWindow(all) {
		t.askAll()
		return nil, -1
	}
	short := false
	for range all {
		r := all[t.turn%len(all)]
		t.turn++
		if !r.usable() {
			continue
		}
		if r.queue.requests.room() <= 1 {
			r.queue.flush() // so that a completion tells when there is room
			continue
		}
		if i := r.takeSlot(); i >= 0 {
			return r, i
		}
		short = short || r.credit.messages.left() > 0
	}
	if short { // of buffers, which come back when the peer tells what it has
		t.askAll()
	}
	return nil, -1
}

// askAll asks the peer for all credit that it has, although less than half of the slots of a rail are posted again. It
// might come with nothing else: the peer has what it waits for, or waits for what must be moved.
func (t *order) askAll() {
	for _, r := range t.s.e.rails.all() {
		_ = r.askWake() // without room it is asked in the next attempt
	}
}

// inWindow reports whether the peer has room for another number.
func (t *order) inWindow(all []*rail) bool {
	slots := uint32(0) // of a rail of the peer; 0 before its hello
	for _, r := range all {
		slots = max(slots, r.credit.messages.size)
	}
	window := uint32(t.s.e.paths) * slots
	if t.number+1-t.oldest < window {
		return true
	}
	t.oldest = t.number + 1
	for _, r := range all {
		r.readWord()
		r.reclaim()
		for n := r.flight.first; n != r.flight.end; n++ {
			if c := r.flight.at(n); int32(c.number-t.oldest) < 0 {
				t.oldest = c.number
			}
		}
	}
	return t.number+1-t.oldest < window
}

// move sends over other rails what the peer does not have of those that have failed. It reports whether that was all.
func (t *order) move() bool {
	for len(t.moving) > 0 {
		from := t.moving[0]
		for !from.flight.empty() {
			if !t.moveOne(from) {
				return false
			}
		}
		from.loss.settled = true
		t.moving = t.moving[1:]
	}
	t.moving = nil
	return true
}

// moveOne moves the oldest slot of a rail, with the writes in front of it that are not complete.
func (t *order) moveOne(from *rail) bool {
	s := t.s
	old := from.flight.at(from.flight.first)
	r, i := t.pick(false)
	if r == nil {
		t.askAll()
		return false
	}
	c := *old
	c.buffer = i
	if c.hasWrites() && !c.complete && !r.queue.addAgain(s.ops.at(c.op), c.from, c.to) {
		r.queue.buffers.free |= 1 << uint(i)
		r.queue.flush() // so that a completion tells when there is room
		return false
	}
	b := from.queue.buffer(old.buffer)[:prefixBytes+old.bytes]
	var p prefix
	_ = p.decode(b) // this side has encoded it
	copy(r.queue.buffer(i)[prefixBytes:], b[prefixBytes:])
	if p.kind != kindStripe {
		s.grants.moved(b[prefixBytes:], p.count, grantSize(s.keys), r)
	}
	from.flight.first++
	r.carry(c, &p)
	return true
}
