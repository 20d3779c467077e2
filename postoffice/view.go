package postoffice

import (
	"fmt"
	"slices"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// view is what an office knows about the cluster. The office's lock guards it.
type view struct {
	epoch     uint64 // 0 before the start
	announced int    // peers that the list will have
	peers     []Peer
	gone      map[wire.PeerID]goneNode // peers that left or died
}

// complete ends the list, once all parts of it have come. self is in the list of a peer, and does not belong there.
func (v *view) complete(self wire.PeerID) {
	v.peers = slices.DeleteFunc(v.peers, func(p Peer) bool { return p.ID == self })
	slices.SortFunc(v.peers, byRank)
}

// find is the peer with an ID; nil for others.
func (v *view) find(id wire.PeerID) *Peer {
	i := slices.IndexFunc(v.peers, func(p Peer) bool { return p.ID == id })
	if i < 0 {
		return nil
	}
	return &v.peers[i]
}

// lose notes that an instance left or died, and returns all that is known about it.
func (v *view) lose(g goneNode) Peer {
	p := v.find(g.ID)
	if p == nil {
		return Peer{ID: g.ID, Role: g.Role, Rank: g.Rank, Host: g.Host, PID: g.PID}
	}
	v.gone[g.ID] = g
	return *p
}

// admit refuses an instance that is not a peer, that has another life than the view knows, or that is gone.
func (v *view) admit(peer link.Identity, name, self, scheduler string) error {
	p := v.find(peer.ID)
	if p == nil {
		return fmt.Errorf("%s (node %d) is not a peer of %s: check DMLC_ROLE, DMLC_INSTANCE_ID and STEPVAN_PAIRING, and that both use the %s",
			name, peer.ID, self, scheduler)
	}
	if p.Incarnation != peer.Incarnation {
		return fmt.Errorf("%s is not the one that joined the cluster of %s: restart the cluster", p.Name(), self)
	}
	if g, gone := v.gone[peer.ID]; gone {
		return fmt.Errorf("%s %s, says %s: %s", p.Name(), g.verb(), self, g.Reason)
	}
	return nil
}
