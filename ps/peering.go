package ps

import (
	"context"
	"slices"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/reach"
	"github.com/stepvan/stepvan/peer"
)

// Peer returns the operations of a node with [RolePeer]: transfers, mail, windows, groups and plans. It is nil for
// other roles.
func (n *Node) Peer() *peer.Peer {
	if s := n.members[0].peer; s != nil {
		return s.Peer()
	}
	return nil
}

// newPeering makes the operations of a peer.
func newPeering(m *member) *peer.Service {
	s := m.node.settings
	return peer.New(m.link, peer.Options{
		Handles: s.Handles, Outstanding: s.Outstanding, Files: m.net.Memories(), Recover: m.recover, Log: m.log,
		Dial: func(ctx context.Context, rank Rank) (*link.Session, error) {
			for _, p := range m.office.Peers() {
				if p.Rank == rank {
					return m.net.Dial(ctx, p)
				}
			}
			return nil, errs.Invalid("connect: peer %d: the cluster has no such peer: give the rank of a peer", rank)
		},
	})
}

// joinPeers tells a peer all peers of the cluster. They connect when they first use each other.
func joinPeers(s *peer.Service, self Peer, others []Peer) error {
	members := make([]peer.Member, len(others)+1)
	for _, p := range slices.Concat(others, []Peer{self}) {
		members[p.Rank] = peer.Member{Rank: p.Rank, Name: p.Name(), Host: p.Host, ID: p.ID, Machine: reach.Machine(p.Addresses)}
	}
	return s.Join(self.Rank, members)
}
