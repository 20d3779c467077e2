package rdma

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van/parts"
)

// loss is how far the loss of a rail is, of which others are left. Each side shuts its end and then says what it has
// received over it. Once a side has shut its own end and heard the other, it sends over other rails what is missing.
// Guarded by endpoint.mu, except what is atomic.
type loss struct {
	begun   atomic.Bool // nothing more is posted
	shut    atomic.Bool // the queue pair is destroyed: nothing comes, and no device uses memory for it
	said    bool        // the peer will hear what came over the rail
	heard   atomic.Bool // the peer has said the same
	settled bool        // what was missing has gone over other rails
	listed  atomic.Bool // the endpoint has the rail; before, its maker frees it
	cause   atomic.Pointer[error]
	came    uint64 // what the peer has said: messages, and records
}

// fail takes the rail out, or ends the endpoint if no other rail is left. The first cause stays. Concurrent.
func (r *rail) fail(op string, err error) {
	e := r.e
	if !r.flight.on || isProtocol(err) {
		e.fail(op, err)
		return
	}
	r.loss.cause.CompareAndSwap(nil, &err)
	if !r.loss.begun.CompareAndSwap(false, true) {
		return
	}
	if r.loss.listed.Load() {
		r.takeOut(op, err)
	}
}

// takeOut ends a rail that has failed, or the endpoint if no other is left.
func (r *rail) takeOut(op string, err error) {
	e := r.e
	switch {
	case e.rails.count((*rail).usable) == 0:
		e.fail(op, e.rails.cause(err))
		return
	case e.state.Load()&(failed|closed) != 0:
		return // all of them end
	}
	e.hurt.Store(true)
	e.v.undertaker.addRail(r)
	e.note()
}

// cause is why the rails have gone, err if there is nothing better. A peer that closes ends one after another, and says
// no more. One that takes a rail out says so.
func (s *rails) cause(err error) error {
	for _, r := range s.all() {
		if why := r.loss.cause.Load(); why != nil && errors.Is(*why, parts.ErrClosedByPeer) && !r.loss.heard.Load() {
			return *why
		}
	}
	return err
}

// mend does what the loss of rails asks for. The poller's.
func (e *endpoint) mend() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state.Load()&(failed|closed) != 0 {
		return
	}
	e.hurt.Store(false)
	for _, r := range e.rails.all() {
		if !r.loss.begun.Load() {
			continue
		}
		e.hurt.Store(true)
		e.out.control.sayAgain(r)
		if r.loss.shut.Load() && !r.loss.said {
			r.loss.said = true
			e.in.leave(r)
			e.out.control.losses = append(e.out.control.losses, r)
			e.out.fetched.sent = e.out.fetched.count - 1 // the peer may not have heard it
			e.out.order.settle(r)
			e.out.pending.Store(true)
		}
	}
}

// leave keeps what has come over a rail whose memory goes. The poller's; endpoint.mu is held.
func (r *receiver) leave(from *rail) {
	for i := range r.arrived.ring {
		if f := &r.arrived.ring[i]; f.rail == from {
			f.copy()
		}
	}
	if f := &r.fetch; r.arrival.fetching && f.rail == from && (f.isLost() || len(f.staged) > 0) {
		if err := f.restart(r); err != nil {
			r.e.fail("receive", err)
		}
	}
}

// addLoss adds the record that says what has come over a rail. false: there is no room for it.
func (r *rail) addLoss(of *rail) bool {
	if r.queue.requests.all() <= 1 {
		return false
	}
	i := r.queue.takeBuffer()
	if i < 0 {
		return false
	}
	p := prefix{
		kind: kindRecord, flags: flagLoss, number: r.credit.records.take(),
		head: uint32(of.index) | uint32(of.attempt)<<8, payload: uint64(of.messages) | uint64(of.records)<<32,
	}
	r.queue.addSlot(i, &p, 0, false)
	r.flight.forget(r.credit.records.back.Load())
	r.flight.records = append(r.flight.records, carriedRecord{number: p.number, flag: flagLoss, loss: of})
	return true
}

// takeLoss hears what the peer has received over a rail that it has shut. endpoint.mu is held.
func (t *order) takeLoss(from *rail, p *prefix) error {
	index, attempt := int(p.head&0xff), uint16(p.head>>8)
	e := t.s.e
	r := e.rails.at(index)
	switch {
	case index >= e.paths || r == from:
	case r == nil || r.attempt != attempt:
		if l := &t.early[index]; !l.is || int16(attempt-l.attempt) > 0 {
			*l = earlyLoss{true, attempt, p.payload}
		}
		return nil
	case !r.loss.heard.Load():
		return t.noteCame(r, p.payload)
	case r.loss.came == p.payload:
		return nil // it was said again, since a rail was lost that had carried it
	}
	return errs.Protocol("record", 16, "rail %d is shut, and was not open", index)
}

// sayAgain says again what a lost rail was to tell of other losses. Else each side may wait for what the other one has
// told over a rail that it has not yet given up.
func (c *control) sayAgain(lost *rail) {
	f := &lost.flight
	f.records = slices.DeleteFunc(f.records, func(r carriedRecord) bool {
		if r.flag == flagLoss {
			c.losses = append(c.losses, r.loss)
			c.s.pending.Store(true)
		}
		return r.flag == flagLoss
	})
}

// earlyLoss is the loss of a rail that this side does not have yet: the peer has shut it while this side connects. If
// only the peer has had the rail, nothing comes of it.
type earlyLoss struct {
	is      bool
	attempt uint16
	came    uint64
}

// noteEarly takes out a rail that the peer has shut before this side had it. endpoint.mu is held.
func (t *order) noteEarly(r *rail) error {
	l := t.early[r.index]
	t.early[r.index] = earlyLoss{}
	if !l.is || l.attempt != r.attempt {
		return nil
	}
	err := t.noteCame(r, l.came)
	if err != nil {
		r.e.fail("connect", err)
	}
	return err
}

// noteCame notes what the peer has received over a rail: messages, and records. endpoint.mu is held.
func (t *order) noteCame(r *rail, came uint64) error {
	messages, records := uint32(came), uint32(came>>32)
	switch {
	case int32(messages-r.credit.messages.back.Load()) < 0 || !r.credit.messages.learn(messages):
		return errs.Protocol("record", 24, "%d messages are said to have come over rail %d (want %d to %d)",
			messages, r.index, r.credit.messages.back.Load(), r.credit.messages.sent.Load())
	case int32(records-r.credit.records.back.Load()) < 0 || !r.credit.records.learn(records):
		return errs.Protocol("record", 28, "%d records are said to have come over rail %d (want %d to %d)",
			records, r.index, r.credit.records.back.Load(), r.credit.records.sent.Load())
	}
	r.loss.came = came
	r.loss.heard.Store(true)
	r.fail("receive", errTakenOut)
	t.settle(r)
	return nil
}

var errTakenOut = lossOf(errors.New("the peer has taken the rail out"))

// awaits reports whether the peer must say what has come over the rail. Before its hello, this side has sent nothing.
func (r *rail) awaits() bool { return r.ready.Load() && !r.loss.heard.Load() }

// settle finds out what the peer is missing of a rail, once both ends are shut. endpoint.mu is held.
func (t *order) settle(r *rail) {
	s := t.s
	if !r.loss.shut.Load() || r.awaits() || !r.loss.said {
		return
	}
	f, has := &r.flight, r.credit.messages.back.Load()
	for n := f.retired; n != f.end && int32(has-n) >= 0; n++ {
		f.at(n).finish(&s.ops) // it came, so what was written in front of it did
	}
	r.reclaim()
	t.moving = append(t.moving, r)
	for _, c := range f.records {
		switch c.flag {
		case flagWithdraw:
			s.control.withdraw = append(s.control.withdraw, c.grants...)
		case flagAnswer:
			s.control.answer = append(s.control.answer, c.grants...)
		}
	}
	f.records = nil
	s.waiting.Store(true)
	s.pending.Store(true)
	s.e.note()
}
