package postoffice

import (
	"fmt"

	"github.com/stepvan/stepvan"
)

// round serves opBarrier and opWithdraw.
func (s *Scheduler) round(m *member, f frame) error {
	var b barrierBody
	if err := decode(f, &b); err != nil {
		return err
	}
	k := barrierKey{b.Group, b.Instances}
	if err := k.group.check(m.info.Role); err != nil {
		return err
	}
	if f.op == opWithdraw {
		s.barriers.withdraw(m, k, f.request)
		return nil
	}
	return s.enter(m, k, f.request)
}

func (s *Scheduler) enter(m *member, k barrierKey, request uint64) error {
	if g := s.firstGone(k.group); g != nil {
		s.send(m.conn, encode(opBroken, request, needed(g)))
		return nil
	}
	released, ok := s.barriers.enter(m, k, request, s.o.WaitingEvery/5)
	if !ok {
		return malformed(opBarrier, "in the round already")
	}
	for _, a := range released {
		s.send(a.m.conn, frame{op: opReleased, request: a.request})
	}
	return nil
}

// needed is the failure of a round that g will never enter.
func needed(g *member) failure {
	verb := "died"
	if g.left {
		verb = "left"
	}
	return failure{Kind: failLost, Node: g.info.Name(), Text: fmt.Sprintf("%s %s: %s", g.info, verb, g.reason)}
}

// firstGone is the first member of the group's roles that left or died, if any did.
func (s *Scheduler) firstGone(g Group) *member {
	for role := range s.o.sizes() {
		if m := s.firsts[role]; m != nil && g.Has(role) {
			return m
		}
	}
	return nil
}

// breakRounds ends the rounds that g was needed for.
func (s *Scheduler) breakRounds(g *member) {
	f := needed(g)
	body := marshal(f)
	for _, a := range s.barriers.breakFor(g.info.Role) {
		s.send(a.m.conn, frame{op: opBroken, request: a.request, body: body})
	}
}

// quorum is how many instances, or nodes, complete a round.
func (s *Scheduler) quorum(k barrierKey) int {
	n := 0
	if k.group.Has(stepvan.RoleScheduler) {
		n = 1
	}
	for role, size := range s.o.sizes() {
		switch {
		case !k.group.Has(role):
		case k.instances:
			n += size
		default:
			n += size / s.o.GroupSize
		}
	}
	return n
}

// local is the scheduler's own conn: what a node would be told resolves the calls of this process.
type local struct {
	conn
	calls *caller
}

func (l *local) post(f frame) {
	switch f.op {
	case opReleased:
		l.calls.resolve(f.request, nil)
	case opBroken:
		var b failure
		if err := decode(f, &b); err != nil {
			l.calls.resolve(f.request, err)
			return
		}
		l.calls.resolve(f.request, b.err("barrier", ""))
	}
}

func (l *local) pump() {}
