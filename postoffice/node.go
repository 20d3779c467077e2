package postoffice

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

// AnyRank leaves the rank to the scheduler, in order of arrival.
const AnyRank stepvan.Rank = -1

// LocalRank is the index of an instance within its node, from 0 to the group size - 1.
type LocalRank int

// AnyLocalRank leaves the index to the scheduler: it follows from the rank.
const AnyLocalRank LocalRank = -1

// SchedulerID is the scheduler's PeerID.
const SchedulerID wire.PeerID = 1

// Peer is what the cluster knows about one instance. It must not be
// changed by its readers, who share Addresses.
type Peer struct {
	ID          wire.PeerID  `json:"id"`
	Role        Role         `json:"role"`
	Rank        stepvan.Rank `json:"rank"`
	NodeRank    int          `json:"node"`     // rank of the node that the instance belongs to
	LocalRank   LocalRank    `json:"instance"` // index within that node: pairs workers with servers
	GroupSize   int          `json:"group"`    // instances per node
	Incarnation uint32       `json:"incarnation"`
	Host        string       `json:"host,omitempty"` // for messages
	PID         int          `json:"pid,omitempty"`  // for messages
	Addresses   []string     `json:"addresses,omitempty"`
}

// Name reads "worker 3", and "scheduler", of which there is one.
func (n Peer) Name() string {
	switch {
	case n.Role == RoleScheduler:
		return "scheduler"
	case n.Rank < 0:
		return n.Role.String()
	}
	return fmt.Sprintf("%s %d", n.Role, n.Rank)
}

// String reads "worker 3 (host a17, pid 4711)".
func (n Peer) String() string {
	switch {
	case n.Host != "" && n.PID != 0:
		return fmt.Sprintf("%s (host %s, pid %d)", n.Name(), n.Host, n.PID)
	case n.Host != "":
		return fmt.Sprintf("%s (host %s)", n.Name(), n.Host)
	}
	return n.Name()
}

// nodeID is stable over restarts of a process, so a view can be rebuilt from
// what nodes report. Nobody else should read anything into it.
func nodeID(r Role, rank stepvan.Rank) wire.PeerID {
	if r == RoleScheduler {
		return SchedulerID
	}
	return wire.PeerID(uint32(rank)*3 + uint32(r))
}

// maxRank keeps node ids within their 32 bits.
const maxRank = 1_000_000_000

// Pairing says which servers a worker talks to, and the other way round.
type Pairing uint8

// Pairings.
const (
	PairInstance Pairing = iota // the server of the same instance index on every node
	PairAll                     // every server instance
)

// lists reports whether node a's list of peers contains b.
func (p Pairing) lists(a, b Peer) bool {
	switch {
	case a.Role == RoleWorker && b.Role == RoleServer, a.Role == RoleServer && b.Role == RoleWorker:
		return p == PairAll || a.LocalRank == b.LocalRank
	}
	return a.Role == RolePeer && b.Role == RolePeer
}
