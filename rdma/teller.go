package rdma

import (
	"encoding/binary"
	"slices"
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/van"
)

// teller tells the peer how many of its slots are posted again. Guarded by endpoint.mu, except the two counts and
// wakeFrom, which the poller writes, and wake.
type teller struct {
	messages, records atomic.Uint32 // posted again so far
	half              uint32        // so many messages are worth a write of their own

	toldMessages uint32
	toldRecords  uint32 // in a slot, since a peer that sleeps does not look at the word
	word         uint64 // where the peer is told, and the key of that place
	key          verbs.RemoteKey

	wake     atomic.Bool // the peer waits for credit, and may sleep
	wakeFrom uint32      // the count of messages that it knew of; the poller's
}

// fetched counts payloads of the peer that were fetched or refused. Guarded by endpoint.mu.
type fetched struct {
	count, sent uint32 // so far; as far as the peer was told
}

// due reports whether the peer must be told.
func (f *fetched) due() bool { return f.count != f.sent }

// stamp puts the counts into a prefix.
func (r *rail) stamp(p *prefix) {
	t, f := &r.teller, &r.e.out.fetched
	p.messages, p.records = t.messages.Load(), t.records.Load()
	t.toldMessages, t.toldRecords = p.messages, p.records
	p.fetched, f.sent = f.count, f.count
}

// wordDue reports whether the peer must be told of messages, though there is nothing to send.
func (t *teller) wordDue() bool { return t.messages.Load()-t.toldMessages >= t.half }

// wakeDue reports whether a peer that asked for it can be woken.
func (t *teller) wakeDue() bool { return t.wake.Load() && int32(t.messages.Load()-t.wakeFrom) > 0 }

// tell tells the peer of credit, where that is due: with a record if it may sleep, else by writing its word.
func (r *rail) tell() {
	r.e.out.pumpControl()
	if r.teller.wordDue() && r.queue.requests.all() > 1 {
		r.addWord()
		r.queue.post()
	}
}

// recordDue reports whether the peer must be told by a record. A peer whose records wait for credit has used all but
// one of its slots, so half of them are posted again at this side.
func (r *rail) recordDue() bool {
	t := &r.teller
	return t.wakeDue() || r.e.out.fetched.due() || t.records.Load()-t.toldRecords >= recordSlots/2
}

// tellByRecord adds a record that brings nothing but credit, where that is due.
func (r *rail) tellByRecord() {
	woken := r.teller.wakeDue()
	if r.recordDue() && r.mayTell() && r.addRecord(flagCredit) && woken {
		r.teller.wake.Store(false)
	}
}

// mayTell reports whether there is credit for a record that brings credit. The last one must bring some for records:
// two sides without any would wait for each other.
func (r *rail) mayTell() bool {
	left := r.credit.records.left()
	return left > 1 || left == 1 && r.teller.records.Load() != r.teller.toldRecords
}

// addWord adds a write of the counts to the chain.
func (r *rail) addWord() {
	t := &r.teller
	t.toldMessages = t.messages.Load()
	r.conn.word(atTold).Store(uint64(t.toldMessages) | uint64(t.records.Load())<<32)
	w := verbs.Request{Op: verbs.OpWrite, Remote: t.word, Key: t.key}
	if r.queue.inline >= 8 {
		w.Flags = verbs.Inline
	}
	r.queue.add(w, false, verbs.Segment{Addr: addressOf(r.conn.memory.Bytes()[atTold:]), Length: 8, Key: r.conn.words.LocalKey()})
}

// addRecord adds a record to the chain, for which there is credit. false: there is no room.
func (r *rail) addRecord(f flags, grants ...van.GrantID) bool {
	if r.queue.requests.all() <= 1 {
		return false
	}
	i := r.queue.takeBuffer()
	if i < 0 {
		return false
	}
	p := prefix{kind: kindRecord, flags: f, count: len(grants), number: r.credit.records.take()}
	if f == flagWake {
		p.payload = uint64(r.credit.messages.back.Load())
	}
	for at, id := range grants {
		binary.LittleEndian.PutUint64(r.queue.buffer(i)[prefixBytes+8*at:], uint64(id))
	}
	if r.flight.on && len(grants) > 0 {
		r.flight.forget(r.credit.records.back.Load())
		r.flight.records = append(r.flight.records, carriedRecord{number: p.number, flag: f, grants: slices.Clone(grants)})
	}
	r.queue.addSlot(i, &p, 8*len(grants), false)
	return true
}

// askWake asks the peer to wake this side, which waits for credit. It reports whether this side may sleep.
func (s *sender) askWake() bool {
	if s.resume(); s.ops.unposted() == nil && len(s.order.moving) == 0 {
		return true
	}
	for _, r := range s.e.rails.all() {
		if !r.askWake() {
			return false
		}
	}
	return true
}

// askWake does so for one rail.
func (r *rail) askWake() bool {
	c := &r.credit.messages
	switch {
	case r.asked, !r.usable(), !r.flight.on && c.left() > 0:
		return true // where credit is left, a completion brings room
	case r.flight.on && c.sent.Load() == c.back.Load():
		return true // another rail keeps the message from going
	case r.credit.records.left() <= 1:
		return true // the peer owes a record with credit
	case !r.addRecord(flagWake):
		return false
	}
	r.asked = true
	r.queue.post()
	return true
}
