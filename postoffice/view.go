package postoffice

import (
	"fmt"
	"slices"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// standing is what an office knows about one peer.
type standing struct {
	info Peer
	gone *goneNode // nil while it takes part
}

// view is what an office knows about the cluster. The office's lock guards it.
type view struct {
	epoch     uint64 // 0 before the start
	announced int    // peers that the list will have
	peers     []Peer
	states    map[wire.PeerID]*standing
}

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
	s.gone = &g
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
	case s.gone != nil:
		return fmt.Errorf("%s %s, says %s: %s", s.info.Name(), s.gone.verb(), self, s.gone.Reason)
	}
	return nil
}
