package rdma

import (
	"encoding/binary"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van"
)

// control is what records must still tell the peer. Guarded by endpoint.mu.
type control struct {
	s        *sender
	withdraw []van.GrantID // grants of this side that the peer must leave alone
	answer   []van.GrantID // grants of the peer that this side leaves alone
	losses   []*rail       // rails that this side has shut
}

func (c *control) due() bool { return len(c.withdraw)+len(c.answer)+len(c.losses) > 0 }

// pumpControl sends what has credit. An answer follows all writes that were posted before.
func (s *sender) pumpControl() {
	for _, l := range []struct {
		ids  *[]van.GrantID
		flag flags
	}{{&s.control.answer, flagAnswer}, {&s.control.withdraw, flagWithdraw}} {
		for len(*l.ids) > 0 {
			r, n := s.control.railFor(l.flag, *l.ids)
			if r == nil || !r.addRecord(l.flag, (*l.ids)[:n]...) {
				break
			}
			*l.ids = append((*l.ids)[:0], (*l.ids)[n:]...)
		}
	}
	for c := &s.control; len(c.losses) > 0; c.losses = c.losses[1:] {
		if r := s.e.rails.forRecord(1); r == nil || !r.addLoss(c.losses[0]) {
			break
		}
	}
	due := false
	for _, r := range s.e.rails.all() {
		if r.usable() || !s.e.several() {
			r.tellByRecord()
			due = due || r.recordDue()
		}
	}
	s.endKeys()
	s.e.rails.post()
	s.pending.Store(due || s.control.due() || len(s.windows.closing) > 0)
}

// forRecord returns a rail with credit for a record, beyond a reserve, or nil.
func (s *rails) forRecord(reserve int) *rail {
	for _, r := range s.all() {
		if !r.loss.begun.Load() && r.credit.records.left() > reserve {
			return r
		}
	}
	return nil
}

// railFor returns the rail for a record of grants, and how many of them may go. nil: none may go yet.
func (c *control) railFor(f flags, ids []van.GrantID) (r *rail, n int) {
	if r = c.railOf(f, ids[0]); r == nil || r.credit.records.left() <= 1 {
		return nil, 0
	}
	n = 1
	for most := min(len(ids), (r.slotBytes-prefixBytes)/8); n < most && (!c.s.e.several() || c.railOf(f, ids[n]) == r); n++ {
	}
	return r, n
}

// railOf returns the rail for the record of a grant. A withdrawal follows the grant. An answer follows the last write,
// which may have gone over any rail.
func (c *control) railOf(f flags, id van.GrantID) *rail {
	s := c.s
	if !s.e.several() {
		return s.e.rails.first()
	}
	if f == flagAnswer {
		if s.ops.writeTo(id) {
			return nil
		}
		return s.e.rails.forRecord(1)
	}
	g := s.grants.byID[id]
	switch {
	case g == nil || g.rail == nil || g.rail.loss.settled:
		return s.e.rails.forRecord(1)
	case g.rail.loss.begun.Load():
		return nil
	}
	return g.rail
}

// takeIDs reads the grants that a record names.
func takeIDs(p *prefix, body []byte) ([]van.GrantID, error) {
	if p.count*8 != len(body) {
		return nil, errs.Protocol("record", 2, "%d grants in %d bytes", p.count, len(body))
	}
	ids := make([]van.GrantID, p.count)
	for i := range ids {
		ids[i] = van.GrantID(binary.LittleEndian.Uint64(body[8*i:]))
	}
	return ids, nil
}

// takeControl does what a record asks for. endpoint.mu is held.
func (s *sender) takeControl(p *prefix, body []byte) error {
	ids, err := takeIDs(p, body)
	if err != nil {
		return err
	}
	for _, id := range ids {
		switch p.flags {
		case flagWithdraw:
			g := s.peer[id]
			if g == nil {
				return errs.Protocol("record", prefixBytes, "grant %#x is withdrawn, and was not given", uint64(id))
			}
			g.gone = true
			delete(s.peer, id)
			s.control.answer = append(s.control.answer, id)
		case flagAnswer:
			g := s.grants.byID[id]
			if g == nil || !g.withdrawing || !g.announced {
				return errs.Protocol("record", prefixBytes, "grant %#x is left alone, and was not withdrawn", uint64(id))
			}
			s.grants.withdrawals--
			s.close(g)
		}
	}
	s.pumpControl()
	return nil
}
