package postoffice

import (
	"cmp"
	"fmt"
	"math/rand/v2"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

// AnyRank leaves the choice of the rank to the scheduler, which gives ranks in order of arrival.
const AnyRank stepvan.Rank = -1

// LocalRank is the index of an instance within its node, from 0 to the group size - 1.
type LocalRank int

// AnyLocalRank leaves the index to the scheduler, which takes it from the rank.
const AnyLocalRank LocalRank = -1

// SchedulerID is the scheduler's PeerID.
const SchedulerID wire.PeerID = 1

// Peer is what the cluster knows about one instance. Its readers share Addresses and must not change them.
type Peer struct {
	ID          wire.PeerID  `json:"id"`
	Role        stepvan.Role `json:"role"`
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
	case n.Role == stepvan.RoleScheduler:
		return "scheduler"
	case n.Rank < 0:
		return string(n.Role)
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

// nodeID is stable over restarts of a process, so that a view can be rebuilt from what instances report. Other code
// must not read anything into it. Peers have every third number, as servers and workers do, from the one that a second
// scheduler would have.
func nodeID(r stepvan.Role, rank stepvan.Rank) wire.PeerID {
	return wire.PeerID(int(rank)*3 + roleNumber(r))
}

// maxRank keeps node ids within their 32 bits.
const maxRank = 1_000_000_000

// lists reports whether the list that the scheduler sends to a contains b. That of a peer contains the peer itself, so
// that all peers get the same list.
func lists(p stepvan.Pairing, a, b Peer) bool {
	if a.Role == stepvan.RolePeer || b.Role == stepvan.RolePeer {
		return a.Role == b.Role
	}
	return a.Role != b.Role && (p == stepvan.PairAll || a.LocalRank == b.LocalRank)
}

// byRank orders the peers of one instance, which all have one role.
func byRank(a, b Peer) int { return cmp.Compare(a.Rank, b.Rank) }

// newIncarnation names one life of an instance: random, and never 0, which means "not known".
func newIncarnation() uint32 { return rand.Uint32N(1<<32-1) + 1 }
