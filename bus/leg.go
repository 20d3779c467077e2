package bus

import (
	"context"
	"fmt"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// leg is what a batch moves over one pair, at one agent. It has the ranks of the pair that this agent serves. Agent.mu
// guards it, except for what the goroutine of its plans and runs uses.
type leg struct {
	a       *Agent
	key     legKey
	r       *roster
	places  map[int]*place   // by index in roster.all, for the ranks of this agent
	token   uint64           // of the registration; 0 until everything fits
	early   map[uint64]error // failures of tokens that have not come, by token
	forms   []form           // of the tensors
	courses [2]course        // from side 0 to side 1, and back
	rounds  sync.WaitGroup   // that run
	ready   bool             // all agents have made their plans
	failed  error
	leaving error                 // why it ends after the rounds that are still possible; nil: it continues
	limits  [2]uint64             // the last of these rounds, by direction
	gone    map[stepvan.Rank]bool // agents that have left it
	tells   audience              // of its end
	ctx     context.Context       // until it has failed
	cancel  context.CancelFunc
	planner chan struct{} // closed when no plan is being made; nil before
	closed  chan struct{} // closed when nothing uses the memory any more
}

type legKey struct{ batch, pair string }

// checkLeg refuses a rank whose leg cannot be joined. Under mu.
func (a *Agent) checkLeg(key legKey, r *roster, member int) error {
	l := a.legs[key]
	switch {
	case l == nil:
		return nil
	case l.token != 0 || l.failed != nil || l.places[member] != nil:
		return errs.Invalid("pair %q: another client of this agent uses the batch_id: clean that batch up first, or use another", key.pair)
	case l.r.id != r.id:
		return errs.Invalid("pair %q: the clients of this agent do not name the same partners: send InitPair again at all ranks", key.pair)
	}
	return nil
}

// join adds a rank to a leg, and tells the leader of the pair what it has. Under mu.
func (a *Agent) join(key legKey, r *roster, p *place) {
	l := a.legs[key]
	if l == nil {
		l = &leg{a: a, key: key, r: r, places: map[int]*place{}, gone: map[stepvan.Rank]bool{}, closed: make(chan struct{})}
		l.ctx, l.cancel = context.WithCancel(a.ctx)
		for d := range l.courses {
			l.courses[d].asked = map[int]uint64{}
			l.courses[d].announced = map[stepvan.Rank]uint64{}
		}
		a.legs[key] = l
	}
	p.leg, p.attempt = l, a.number()
	l.places[p.member] = p
	m := &letter{kind: letterRegister, batch: key.batch, pair: key.pair, roster: r.id, member: p.member, attempt: p.attempt}
	for i := range p.views {
		v := &p.views[i]
		m.forms = append(m.forms, form{[2]tensor.DType{v.DType(), v.DType()}, v.Shape()})
	}
	a.send(r.leader(), m)
}

// withdraw tells the leader that a rank gives up its registration. Under mu.
func (l *leg) withdraw(p *place, why error) {
	l.a.send(l.r.leader(), &letter{
		kind: letterWithdraw, batch: l.key.batch, pair: l.key.pair, roster: l.r.id, member: p.member, attempt: p.attempt, failure: failureOf(why),
	})
}

// follow handles a letter to the agents of a pair. Under mu.
func (a *Agent) follow(from stepvan.Rank, m *letter) {
	l := a.legs[legKey{m.batch, m.pair}]
	if l == nil || l.r.id != m.roster || l.failed != nil || !l.r.has(from) {
		return
	}
	switch m.kind {
	case letterFits:
		if from == l.r.leader() && l.token == 0 && l.matches(m) {
			l.token, l.forms, l.planner = m.token, m.forms, make(chan struct{})
			a.spawn(l.plan)
			if err := l.early[m.token]; err != nil {
				l.fail(err, otherLegs)
			}
		}
	case letterGo:
		if from == l.r.leader() && m.token == l.token && l.token != 0 {
			l.ready = true
			a.wake()
		}
	case letterFailed:
		p := l.places[m.member]
		if l.token == 0 && m.token != 0 && len(l.early) < maxEarly { // the letter of the leader is still on its way
			if l.early == nil {
				l.early = map[uint64]error{}
			}
			l.early[m.token] = m.failure.err()
		}
		if l.token != 0 && m.token == l.token || l.token == 0 && p != nil && p.attempt == m.attempt {
			if l.token != 0 {
				l.gone[from] = true
			}
			l.conclude(m.failure.err(), m.rounds, otherLegs)
		}
	case letterAsked:
		if m.token == l.token && l.token != 0 {
			c := &l.courses[m.direction]
			c.announced[from] = max(c.announced[from], m.rounds[m.direction])
		}
	}
}

// maxEarly bounds the failures that are kept.
const maxEarly = 64

// matches reports whether a letter of the leader is about the registrations of this agent's ranks.
func (l *leg) matches(m *letter) bool {
	if len(m.attempts) != len(l.r.all) {
		return false
	}
	for i, who := range l.r.all {
		if who.agent != l.a.self {
			continue
		}
		if p := l.places[i]; p == nil || p.attempt != m.attempts[i] || len(p.views) != len(m.forms) {
			return false
		}
	}
	return true
}

// audience says which agents hear of the end of a leg.
type audience uint8

const (
	nobody    audience = iota
	otherLegs          // the agents of the other legs of its batches
	everybody          // and all agents of the leg
)

// fail ends a leg for good. Under mu.
func (l *leg) fail(err error, tell audience) {
	if l.failed != nil {
		return
	}
	a := l.a
	err = mark(err)
	l.failed = err
	l.cancel()
	if !l.ready && a.legs[l.key] == l {
		delete(a.legs, l.key)
	}
	if key := (collectionKey{l.key.batch, l.key.pair, l.r.id}); l.token != 0 && a.collections[key] != nil && a.collections[key].token == l.token {
		delete(a.collections, key)
	}
	switch {
	case tell == everybody:
		l.tell(err)
	case tell == otherLegs && l.token != 0: // the leader must know before this agent registers the batch again
		l.tellAgent(l.r.leader(), err)
	}
	for d := range l.courses {
		for _, w := range l.courses[d].failAfter(0, l.transferError(err)) {
			a.spawn(w.tell)
		}
	}
	for _, p := range l.places {
		for _, other := range p.batch.parts {
			switch {
			case other.leg == nil || tell == nobody:
			case l.leaving != nil:
				other.leg.conclude(err, other.leg.begun(), everybody)
			default:
				other.leg.fail(err, everybody)
			}
		}
	}
	a.spawn(l.close)
	a.wake()
}

// conclude ends a leg for good, after the rounds that are still possible: another agent has left after so many rounds.
// A round in which it has done its part does not need it any more. Under mu.
func (l *leg) conclude(err error, rounds [2]uint64, tell audience) {
	if l.failed != nil {
		return
	}
	if l.leaving == nil {
		l.leaving, l.limits = mark(err), rounds
	}
	l.tells = max(l.tells, tell)
	for d := range l.courses {
		c := &l.courses[d]
		l.limits[d] = min(l.limits[d], rounds[d])
		if c.busy && c.begun > l.limits[d] {
			l.leaving = nil
			l.fail(err, tell)
			return
		}
		for _, w := range c.failAfter(l.limits[d], l.transferError(l.leaving)) {
			l.a.spawn(w.tell)
		}
	}
	l.settle()
}

// settle ends a leg that another agent has left, if no other round is possible. Under mu.
func (l *leg) settle() {
	if l.leaving == nil || l.courses[0].done < l.limits[0] || l.courses[1].done < l.limits[1] {
		return
	}
	l.fail(l.leaving, l.tells)
}

// last is the last round that is possible in a direction. Under mu.
func (l *leg) last(d int) uint64 {
	if l.leaving == nil {
		return ^uint64(0)
	}
	return l.limits[d]
}

// begun is how many rounds have begun, by direction. Under mu.
func (l *leg) begun() [2]uint64 { return [2]uint64{l.courses[0].begun, l.courses[1].begun} }

// done is how many rounds are over, by direction. Under mu.
func (l *leg) done() [2]uint64 { return [2]uint64{l.courses[0].done, l.courses[1].done} }

func (l *leg) transferError(err error) error {
	return fmt.Errorf("Transfer: batch %q: pair %q: %w", l.key.batch, l.key.pair, err)
}

// tell tells the other agents that a leg has failed.
func (l *leg) tell(err error) {
	if l.token == 0 {
		for _, p := range l.places {
			l.withdraw(p, err)
		}
		return
	}
	for _, to := range l.r.agents() {
		l.tellAgent(to, err)
	}
}

func (l *leg) tellAgent(to stepvan.Rank, err error) {
	if to != l.a.self {
		l.a.send(to, &letter{kind: letterFailed, batch: l.key.batch, pair: l.key.pair, roster: l.r.id, token: l.token, rounds: l.done(), failure: failureOf(err)})
	}
}

// close ends the plans of a leg that has failed.
func (l *leg) close() {
	a := l.a
	a.mu.Lock()
	planner := l.planner
	a.mu.Unlock()
	if planner != nil {
		<-planner
	}
	// The letters go first, so that the others receive why, and not only that the plans are over.
	ctx, cancel := context.WithTimeout(a.ctx, answerTime)
	a.flush(ctx)
	cancel()
	l.rounds.Wait() // they use the sums
	for d := range l.courses {
		l.courses[d].close()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	close(l.closed)
	a.wake()
}

// leave says that a rank does not use the leg any more. Under mu.
func (l *leg) leave() {
	for _, p := range l.places {
		if !p.left {
			return
		}
	}
	if l.a.legs[l.key] == l {
		delete(l.a.legs, l.key)
	}
}

// plan makes the plans of both directions, and says so to the leader.
func (l *leg) plan() {
	var err error
	for d := range l.courses {
		if err == nil && l.r.sides[1-d].targetable() {
			err = l.planCourse(d)
		}
	}
	a := l.a
	a.mu.Lock()
	defer a.mu.Unlock()
	close(l.planner)
	if err != nil {
		l.fail(fmt.Errorf("RegisterTensors: batch %q: pair %q: peer %d: %w", l.key.batch, l.key.pair, a.self, err), everybody)
		return
	}
	if l.failed == nil {
		a.send(l.r.leader(), &letter{kind: letterReady, batch: l.key.batch, pair: l.key.pair, roster: l.r.id, token: l.token})
	}
}
