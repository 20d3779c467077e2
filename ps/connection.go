package ps

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/text"
	"github.com/stepvan/stepvan/internal/wire"
)

// Connection says which van carries the tensors between this node and one peer, and why.
type Connection struct {
	Peer   Peer
	Van    string // "shm", "rdma", "tcp", "unix" (Unix sockets) or "mem"
	Reason string // why that van, such as "same machine", "shm: other machine" or "shm: other user, reported by the worker"
	// Counters tell what the devices have done for this peer so far. They are nil over a van without devices.
	Counters *Counters
	Sent     Traffic // to this peer, so far
}

// String returns "server 1: tcp (shm: other machine)", for example.
func (c Connection) String() string {
	return fmt.Sprintf("%s: %s (%s)", c.Peer.Name(), c.Van, c.Reason)
}

// Connections lists the open connections with peers, in the order of their ranks. Each names the van and the reason for
// the choice. The worker chooses the van. A server repeats the reason that the worker has sent. The scheduler has no
// connections, since nobody sends tensors to it.
func (n *Node) Connections() Connections {
	var out Connections
	for _, m := range n.members {
		out = append(out, m.connections()...)
	}
	return out
}

func (m *member) connections() Connections {
	if m.office == nil {
		return nil
	}
	return m.among(m.link.Sessions())
}

// among tells what sessions with peers there are, by rank of the peers.
func (m *member) among(sessions []*link.Session) Connections {
	by := map[wire.PeerID]*link.Session{}
	for _, s := range sessions {
		by[s.Peer().ID] = s
	}
	var out Connections
	for _, p := range m.office.Peers() {
		if s := by[p.ID]; s != nil {
			out = append(out, m.connection(p, s))
		}
	}
	return out
}

// startSessions are the sessions that were opened during the start. Some may be over when it ends: a peer that passes
// the barrier first may have left by then.
type startSessions struct {
	mu   sync.Mutex
	all  []*link.Session
	over bool
}

// add is called by the driver.
func (o *startSessions) add(s *link.Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		o.all = append(o.all, s)
	}
}

// end returns them and keeps none.
func (o *startSessions) end() []*link.Session {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.all
	o.all, o.over = nil, true
	return all
}

func (m *member) connection(p Peer, s *link.Session) Connection {
	van, reason := m.net.Explain(s)
	one := []*link.Session{s}
	return Connection{Peer: p, Van: van, Reason: reason, Counters: link.CountersOf(one)[0], Sent: link.TrafficOf(one)[0]}
}

// warnOfTCP warns when tensors travel over TCP although this machine has RDMA devices.
func (m *member) warnOfTCP(all Connections) {
	over := slices.DeleteFunc(slices.Clone(all), func(c Connection) bool { return c.Van != "tcp" })
	if devices := m.net.UnusedDevices(); len(over) > 0 && len(devices) > 0 {
		m.log.Warn().Msgf("%v, although this machine has RDMA (%s): stepvan doctor says what is missing; STEPVAN_VAN=tcp accepts TCP and ends this warning",
			over, strings.Join(devices, ", "))
	}
}

// Connections are the connections of one node: see [Node.Connections].
type Connections []Connection

// String returns one line, which groups connections with the same van and reason. An example is "servers 0-2: shm (same
// machine); server 3: tcp (shm: other machine)".
func (all Connections) String() string {
	var groups []*group
	for _, c := range all {
		i := slices.IndexFunc(groups, func(g *group) bool { return g.alike(c) })
		if i < 0 {
			i, groups = len(groups), append(groups, &group{Connection: c})
		}
		groups[i].ranks = append(groups[i].ranks, int(c.Peer.Rank))
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return -cmp.Compare(len(a.ranks), len(b.ranks)) })
	var parts []string
	left := len(all)
	for i, g := range groups {
		if i == maxListed {
			parts = append(parts, fmt.Sprintf("%d others in other ways", left))
			break
		}
		left -= len(g.ranks)
		parts = append(parts, g.String())
	}
	return strings.Join(parts, "; ")
}

// group is peers of one role that are reached alike.
type group struct {
	Connection
	ranks []int
}

func (g *group) alike(c Connection) bool {
	return g.Van == c.Van && g.Reason == c.Reason && g.Peer.Role == c.Peer.Role
}

// String reads "servers 0-2, 5: shm (same machine)".
func (g *group) String() string {
	if len(g.ranks) == 1 {
		return g.Connection.String()
	}
	return fmt.Sprintf("%ss %s: %s (%s)", g.Peer.Role, text.Ranges(g.ranks, maxListed), g.Van, g.Reason)
}
