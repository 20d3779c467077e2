package postoffice

import (
	"fmt"
	"slices"
	"sync"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// peerState says whether a peer takes part.
type peerState uint8

// States of a peer.
const (
	alive peerState = iota
	left            // on purpose
	dead
)

// String is a word for messages.
func (s peerState) String() string { return [...]string{"alive", "left", "dead"}[min(s, dead)] }

// standing is what an office knows about one peer.
type standing struct {
	info   Peer
	state  peerState
	reason string
}

// view is what an office knows about the cluster. The office's lock guards it.
type view struct {
	epoch     uint64 // 0 before the start
	announced int    // peers that the list will have
	peers     []Peer
	states    map[wire.PeerID]*standing
}

// complete reports whether the list of peers has come.
func (v *view) complete() bool { return len(v.peers) >= v.announced }

// sort puts the list in order.
func (v *view) sort() {
	slices.SortFunc(v.peers, byRank)
	for _, n := range v.peers {
		v.states[n.ID] = &standing{info: n}
	}
}

// lose notes that an instance left or died, and returns all that is known about it.
func (v *view) lose(g goneNode) Peer {
	s := v.states[g.ID]
	if s == nil {
		return g.info()
	}
	s.state, s.reason = dead, g.Reason
	if g.Left {
		s.state = left
	}
	return s.info
}

// admit refuses an instance that is not a peer, that has another life than the view knows, or that is gone.
func (v *view) admit(peer link.Identity, name, self, scheduler string) error {
	s := v.states[peer.ID]
	switch {
	case s == nil:
		return fmt.Errorf("%s (node %d) is not a peer of %s: check DMLC_ROLE, DMLC_INSTANCE_ID and STEPVAN_PAIRING, and that both use the %s",
			name, peer.ID, self, scheduler)
	case s.info.Incarnation != peer.Incarnation:
		return fmt.Errorf("%s is not the one that joined the cluster of %s: restart the cluster", s.info.Name(), self)
	case s.state != alive:
		return fmt.Errorf("%s is %s for %s: %s", s.info.Name(), s.state, self, s.reason)
	}
	return nil
}

// callbacks are the functions of the program that hear of losses, one call at a time.
type callbacks struct {
	mu   sync.Mutex
	dead func(Peer, error)
	left func(Peer)
}

func (c *callbacks) tellDead(p Peer, err error) {
	if c.dead == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead(p, err)
}

func (c *callbacks) tellLeft(p Peer) {
	if c.left == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left(p)
}
