package bus

import (
	"fmt"
	"slices"
	"time"

	"github.com/stepvan/stepvan"
)

// refusal is what the leader of a pair knows of a rank whose agent did not let it register. Agent.mu guards it.
type refusal struct {
	key    collectionKey
	member int // index in roster.all
	why    error
	until  time.Time // when the leader forgets it
}

const (
	// refusalTime is how long a leader remembers a refusal.
	refusalTime = 5 * time.Second
	// amendTime is how long a leader has ranks wait that register after a refusal: the refused one may try again.
	amendTime = 2 * time.Second
	// maxRefusals bounds what other agents may have a leader remember.
	maxRefusals = 1024
)

// tellRefused tells the leader of each pair that this rank does not register. Otherwise the ranks that
// do would wait for it. Under mu.
func (c *RegisterTensors) tellRefused(s *session, role string, why error) {
	why = mark(why)
	done := map[string]bool{}
	for _, t := range c.Tensors {
		x, err := s.pairOf(t.PairName, role)
		if err != nil || done[t.PairName] {
			continue // of a pair that is not open, the ranks are not known
		}
		done[t.PairName] = true
		r, member := x.roster, x.member()
		err = fmt.Errorf("RegisterTensors: batch %q: pair %q: the agent of %s refuses to register it: %w", c.BatchID, t.PairName, r.name(member), why)
		s.a.send(r.leader(), &letter{kind: letterRefused, batch: c.BatchID, pair: t.PairName, roster: r.id, member: member, failure: failureOf(err)})
	}
}

// refuse handles the letter of an agent that does not let a rank register. The ranks that have registered fail. Under
// mu.
func (k collectionKey) refuse(a *Agent, from stepvan.Rank, l *letter) {
	if r := a.rosters[k.roster]; r != nil && (l.member >= len(r.all) || r.all[l.member].agent != from) {
		a.opt.Log.Error().Int("peer", int(from)).Str("pair", k.pair).Msg("an agent refuses tensors of a rank that is not its own")
		return
	}
	c := a.collections[k]
	if c != nil && c.arrivals[l.member] != nil {
		return // the rank has registered, and the agent has refused to do so twice
	}
	k.forget(a, l.member)
	f := refusal{k, l.member, l.failure.err(), time.Now().Add(refusalTime)}
	if len(a.refusals) < maxRefusals {
		a.refusals = append(a.refusals, f)
	}
	known := a.knows(dismissal{k, l.failure.id}) // then ranks that have failed may have registered again
	switch {
	case c == nil:
	case known:
		c.awaitAmendment(a, f)
	default:
		a.dismiss(c, f.why)
	}
}

// forget drops the refusals of a rank, and those that are too old. Under mu.
func (k collectionKey) forget(a *Agent, member int) {
	now := time.Now()
	a.refusals = slices.DeleteFunc(a.refusals, func(f refusal) bool { return f.key == k && f.member == member || now.After(f.until) })
}

// checkRefusals handles the arrival of a rank: others that were refused may not arrive. Under mu.
func (c *collection) checkRefusals(a *Agent, member int) {
	if len(a.refusals) == 0 {
		return
	}
	c.key.forget(a, member)
	for _, f := range a.refusals {
		if f.key == c.key {
			c.awaitAmendment(a, f)
		}
	}
}

// awaitAmendment fails a collection, unless the rank that was refused arrives in time. Under mu.
func (c *collection) awaitAmendment(a *Agent, f refusal) {
	time.AfterFunc(amendTime, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.collections[c.key] == c && c.arrivals[f.member] == nil {
			a.dismiss(c, f.why)
		}
	})
}
