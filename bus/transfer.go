package bus

import (
	"fmt"

	"github.com/stepvan/stepvan/internal/errs"
)

// transfer asks for the next round of a batch. done is called when the round is over in all legs. The
// caller drives the round that is returned, if it may.
func (s *session) transfer(t *Transfer, e envelope, done func(result)) *round {
	r, err := s.ask(t, e, done)
	if err != nil {
		done(result{err: fmt.Errorf("Transfer: batch %q: %w", t.BatchID, err)})
	}
	return r
}

// pending is a transfer that has been asked for. Agent.mu guards it until it is over.
type pending struct {
	left int // legs whose round is not over
	err  error
	done func(result)
}

// end notes the end of a leg. It reports whether that was the last one: the caller calls tell then, without mu. Under
// mu.
func (w *pending) end(err error) (over bool) {
	if w.err == nil {
		w.err = err
	}
	w.left--
	return w.left == 0
}

// tell tells the client that its transfer is over.
func (w *pending) tell() { w.done(result{err: w.err}) }

// ask counts the round and begins what can begin. It returns a round for the caller to drive, if it may.
func (s *session) ask(t *Transfer, e envelope, done func(result)) (mine *round, err error) {
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := s.check(); err != nil {
		return nil, err
	}
	b := s.batches[batchKey{t.BatchID, e.role}]
	if b == nil || !b.ready {
		return nil, errs.Invalid("it is not registered: send RegisterTensors first")
	}
	for _, p := range b.parts {
		if p.leg.failed != nil {
			return nil, p.leg.failed
		}
		d := p.direction(t.Type)
		if p.leg.courses[d].ship == nil {
			return nil, p.leg.errNoPlan(d)
		}
		if p.leg.courses[d].asked[p.member] >= p.leg.last(d) {
			return nil, p.leg.leaving
		}
	}
	w := &pending{left: len(b.parts), done: done}
	for _, p := range b.parts {
		d := p.direction(t.Type)
		c := &p.leg.courses[d]
		c.asked[p.member]++
		c.waiters = append(c.waiters, waiter{c.asked[p.member], w})
		p.leg.announce(d)
		switch r := p.leg.begin(d); {
		case r == nil:
		case (e.waits != nil || e.within > 0) && mine == nil:
			mine = r
		default:
			a.spawn(r.run)
		}
	}
	return mine, nil
}

// direction is the course of a transfer.
func (p *place) direction(t TransferType) int {
	mine := p.leg.r.all[p.member].side
	if t == Send {
		return mine
	}
	return 1 - mine
}

// asked is how many rounds all ranks of this agent have asked for, of one side or of both.
func (l *leg) asked(d int, sides ...int) uint64 {
	least := ^uint64(0)
	for i := range l.places {
		for _, s := range sides {
			if l.r.all[i].side == s {
				least = min(least, l.courses[d].asked[i])
			}
		}
	}
	return least
}

// announce tells the receiving agents of a mixed roster that the sending ranks here have asked for a round. Where
// no agent has ranks of both sides, the offers of the plan say so. Under mu.
func (l *leg) announce(d int) {
	c := &l.courses[d]
	round := l.asked(d, d)
	if !l.r.mixed || round == ^uint64(0) || round <= c.announced[l.a.self] {
		return
	}
	c.announced[l.a.self] = round
	var rounds [2]uint64
	rounds[d] = round
	for _, to := range l.r.agentsOf(1 - d) {
		if to != l.a.self {
			l.a.send(to, &letter{kind: letterAsked, batch: l.key.batch, pair: l.key.pair, roster: l.r.id, token: l.token, direction: d, rounds: rounds})
		}
	}
}

// offered reports whether the other side has asked to send a round that a rank has not asked to receive. Under mu.
func (p *place) offered() bool {
	l := p.leg
	d := 1 - l.r.all[p.member].side
	c := &l.courses[d]
	if c.ship == nil || l.failed != nil {
		return false
	}
	next := c.asked[p.member] + 1
	if next > l.last(d) {
		return false
	}
	if !l.r.mixed {
		version, ok := c.ship.Offered()
		return ok && version >= next
	}
	for _, from := range l.r.agentsOf(d) {
		if c.announced[from] < next {
			return false
		}
	}
	return true
}

// query answers a QueryStatus.
func (s *session) query(q *QueryStatus, role string) (r result) {
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := s.check(); err != nil {
		return result{err: err}
	}
	b := s.batches[batchKey{q.BatchID, role}]
	if b == nil || !b.ready {
		r.status.State = Unknown
		return r
	}
	r.status = b.status()
	if q.StateName == StateSignal {
		r.status.Signal = true
		for _, p := range b.parts {
			r.status.Signal = r.status.Signal && p.offered()
		}
	}
	return r
}

// status is the state of a batch. Under mu.
func (b *batch) status() (s Status) {
	s.State = Registered
	for _, p := range b.parts {
		if p.leg.failed != nil {
			return Status{State: Failed, Round: s.Round, Err: p.leg.failed}
		}
		for d := range p.leg.courses {
			c := &p.leg.courses[d]
			asked := c.asked[p.member]
			s.Round = max(s.Round, asked)
			switch {
			case asked > c.done:
				s.State = Transferring
			case asked > 0 && s.State == Registered:
				s.State = Done
			}
		}
	}
	return s
}
