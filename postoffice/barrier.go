package postoffice

import (
	"slices"
	"time"

	"github.com/stepvan/stepvan"
)

// passage is what the scheduler remembers about one member and one key. Requests are never 0.
type passage struct {
	in       uint64 // request of the round that the member waits in
	released uint64 // request of the last one that was completed
	passed   uint64 // rounds that the member has been through
}

// arrival is a member that waits in a round.
type arrival struct {
	m       *member
	request uint64
}

// nodeKey is one node in a round that counts nodes.
type nodeKey struct {
	role stepvan.Role
	node int
}

// round is an open round: the next after those in barriers.completed.
type round struct {
	in       []*member
	nodes    map[nodeKey]int // instances in the round
	reminder backoff         // about the members that are missing
}

// barriers holds the open rounds. The scheduler's lock guards it.
type barriers struct {
	rounds    map[barrierKey]*round
	completed map[barrierKey]uint64
	need      func(barrierKey) int // instances or nodes that complete a round
}

func newBarriers(need func(barrierKey) int) *barriers {
	return &barriers{rounds: map[barrierKey]*round{}, completed: map[barrierKey]uint64{}, need: need}
}

func (m *member) passage(k barrierKey) *passage {
	p := m.rounds[k]
	if p == nil {
		if m.rounds == nil {
			m.rounds = map[barrierKey]*passage{}
		}
		p = &passage{}
		m.rounds[k] = p
	}
	return p
}

// enter adds m to the round of k and returns the arrivals that this releases. A member that is behind passes by itself.
// Its node took part without it, or it gave up when the round was complete already. If m is in the round already, ok is
// false. A line of the log reminds of a round after step.
func (b *barriers) enter(m *member, k barrierKey, request uint64, step time.Duration) (released []arrival, ok bool) {
	p := m.passage(k)
	switch {
	case p.in != 0 || request == 0:
		return nil, false
	case p.passed < b.completed[k]:
		p.passed, p.released = p.passed+1, request
		return []arrival{{m, request}}, true
	}
	r := b.rounds[k]
	if r == nil {
		r = &round{nodes: map[nodeKey]int{}, reminder: backoff{since: time.Now(), step: step}}
		b.rounds[k] = r
	}
	p.in = request
	r.in = append(r.in, m)
	r.nodes[nodeKey{m.info.Role, m.info.NodeRank}]++
	if r.count(k) < b.need(k) {
		return nil, true
	}
	released = b.clear(k)
	b.completed[k]++
	for _, a := range released {
		p := a.m.passage(k)
		p.passed, p.released = p.passed+1, a.request
	}
	return released, true
}

func (r *round) count(k barrierKey) int {
	if k.Instances {
		return len(r.in)
	}
	return len(r.nodes)
}

// withdraw takes m out of the round, or notes that it was completed before the request came.
func (b *barriers) withdraw(m *member, k barrierKey, request uint64) {
	p := m.passage(k)
	switch {
	case request == 0:
	case p.in == request:
		p.in = 0
		b.rounds[k].remove(m)
	case p.released == request:
		p.passed, p.released = p.passed-1, 0
	}
}

func (r *round) remove(m *member) {
	if i := slices.Index(r.in, m); i >= 0 {
		r.in = slices.Delete(r.in, i, i+1)
	}
	c := nodeKey{m.info.Role, m.info.NodeRank}
	if r.nodes[c]--; r.nodes[c] == 0 {
		delete(r.nodes, c)
	}
}

// clear empties the round of k and returns the arrivals in it.
func (b *barriers) clear(k barrierKey) []arrival {
	r := b.rounds[k]
	delete(b.rounds, k)
	out := make([]arrival, len(r.in))
	for i, m := range r.in {
		p := m.passage(k)
		out[i] = arrival{m, p.in}
		p.in = 0
	}
	return out
}

// breakFor ends all rounds that need a member of role, and returns the arrivals in them.
func (b *barriers) breakFor(role stepvan.Role) []arrival {
	var out []arrival
	for k := range b.rounds {
		if k.Group.Has(role) {
			out = append(out, b.clear(k)...)
		}
	}
	return out
}
