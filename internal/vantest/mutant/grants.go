package mutant

import (
	"slices"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// grantMutations need grants, and no views.
var grantMutations = []Mutation{
	{Name: "completes a withdrawal without withdrawing", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.withdraw = func(e *endpoint, _ van.GrantID, op van.OpID) error {
			e.complete(op, nil)
			return nil
		}
	}},
	{Name: "ignores withdrawals", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.withdraw = func(*endpoint, van.GrantID, van.OpID) error { return nil }
	}},
	{Name: "writes one-sided beside the target", Clauses: []int{3, 8}, mutate: beforeSend(func(m *van.Message) {
		if len(m.Target) > 0 && m.Target[0].Offset > 0 {
			m.Target[0].Offset--
		}
	})},
	{Name: "writes after the withdrawal", Clauses: []int{8}, mutate: writeAgainAfter(van.EventCompletion)},
	{Name: "writes after it is detached", Clauses: []int{8, 11}, mutate: writeAgainAfter(van.EventDetached)},
	{Name: "delivers the head before what was written", Clauses: []int{3, 8}, mutate: writeBehindHead},
	{Name: "tells of a grant one message late", Clauses: []int{8}, mutate: tellGrantsLate},
	{Name: "hides that a message was written", Clauses: []int{8}, mutate: edit(van.EventMessage, func(_ *mutantVan, ev *van.Event) {
		ev.Delivery.Written = false
	})},
	{Name: "calls every message written", Clauses: []int{8}, mutate: edit(van.EventMessage, func(_ *mutantVan, ev *van.Event) {
		ev.Delivery.Written = true
	})},
	{Name: "tells nobody when its peer is detached", Clauses: []int{11}, mutate: drop(van.EventDetached, every(1))},
	{Name: "tells twice that a peer is detached", Clauses: []int{11}, mutate: repeat(van.EventDetached, every(1))},
	{Name: "detaches before the loss", Clauses: []int{11}, mutate: swap(van.EventLost, van.EventDetached, every(1))},
}

// offloadMutations need a device that moves payload.
var offloadMutations = []Mutation{
	{Name: "forgets what travels with the head", Clauses: []int{8}, mutate: edit(van.EventMessage, func(_ *mutantVan, ev *van.Event) {
		if ev.Delivery.Written {
			ev.Delivery.Payload = nil
		}
	})},
	{Name: "takes what travels with the head from the wrong end", Clauses: []int{3, 8}, mutate: edit(van.EventMessage, func(_ *mutantVan, ev *van.Event) {
		if ev.Delivery.Written {
			slices.Reverse(ev.Delivery.Payload)
		}
	})},
	{Name: "takes any number of bytes along", Clauses: []int{8}, mutate: hideError(stepvan.ErrInvalid)},
	{Name: "completes before the device has read the source", Clauses: []int{2, 3, 8}, mutate: completePosted},
}

// completePosted completes each message with targets in Send.
func completePosted(v *mutantVan) {
	early := map[van.OpID]bool{}
	afterSend(func(s sent) error {
		if s.err == nil && len(s.m.Target) > 0 {
			s.m.Done, early[s.op] = true, true
		}
		return s.err
	})(v)
	drop(van.EventCompletion, func(_ *mutantVan, ev van.Event) bool { return early[ev.Op] })(v)
}

// granted is the memory that the mutants of one factory have granted to each other.
type granted struct {
	mu sync.Mutex
	// +checklocks:mu
	mem map[van.GrantID][]byte
}

func (g *granted) add(id van.GrantID, mem []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mem[id] = mem
}

// at returns n bytes from t on, or nil where they are not granted.
func (g *granted) at(t van.Target, n int) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	mem := g.mem[t.Grant]
	if t.Offset < 0 || t.Offset > int64(len(mem)) || n > len(mem)-int(t.Offset) {
		return nil
	}
	return mem[t.Offset:][:n]
}

// writeAgainAfter makes the first byte of every grant of a van wrong after an event of one kind, with a Poll that
// follows.
func writeAgainAfter(kind van.EventKind) func(*mutantVan) {
	return func(v *mutantVan) {
		var own []van.GrantID
		after := -1 // polls until the write
		v.onGrant = func(g van.Grant) { own = append(own, g.ID) }
		edit(kind, func(v *mutantVan, ev *van.Event) {
			if kind == van.EventDetached || slices.Contains(v.withdrawals, ev.Op) {
				after = 2
				v.ring()
			}
		})(v)
		v.onPoll = func() {
			if after--; after != 0 {
				return
			}
			for _, id := range own {
				if b := v.granted.at(van.Target{Grant: id}, 1); b != nil {
					b[0] ^= 1
				}
			}
		}
	}
}

// writeBehindHead writes each payload to its targets with the next Poll, and not before the head is sent.
func writeBehindHead(v *mutantVan) {
	type move struct{ to, from []byte }
	var moves []move
	v.onSend = func(e *endpoint, m *van.Message) error {
		for i := range min(len(m.Target), len(m.Payload)) {
			if to := v.granted.at(m.Target[i], len(m.Payload[i])); to != nil {
				moves = append(moves, move{to, slices.Clone(m.Payload[i])})
				m.Payload[i] = slices.Clone(to)
			}
		}
		return e.Endpoint.Send(m)
	}
	v.onPoll = func() {
		for _, m := range moves {
			copy(m.to, m.from)
		}
		moves = nil
	}
}

// tellGrantsLate refuses the first target of each grant.
func tellGrantsLate(v *mutantVan) {
	known := map[van.GrantID]bool{}
	v.onSend = func(e *endpoint, m *van.Message) error {
		if len(m.Target) > 0 && !known[m.Target[0].Grant] {
			known[m.Target[0].Grant] = true
			return errUnknownGrant
		}
		return e.Endpoint.Send(m)
	}
}
