package ps

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// Connection tells how this node and one of its peers reach each other.
type Connection struct {
	Peer   Peer
	Van    string // "shm", "tcp", "unix" (Unix sockets), "mem"
	Reason string // why that one: "same machine"; "shm: other machine"; "shm: other user, says the worker"
}

// String reads "server 1: tcp (shm: other machine)".
func (c Connection) String() string {
	return fmt.Sprintf("%s: %s (%s)", c.Peer.Name(), c.Van, c.Reason)
}

// Connections lists those peers with which a connection is open, by rank, with what carries
// the tensors and why. A worker knows best: it chose. A server quotes what its worker says of it.
// The scheduler carries no tensors and has none.
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

// meetings are the sessions that were opened during the start. Some may be over when it ends: who
// passes the barrier first may have left by then.
type meetings struct {
	mu   sync.Mutex
	all  []*link.Session
	over bool
}

// add is called by the driver.
func (m *meetings) add(s *link.Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.over {
		m.all = append(m.all, s)
	}
}

// end returns them and keeps none.
func (m *meetings) end() []*link.Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.all
	m.all, m.over = nil, true
	return all
}

func (m *member) connection(p Peer, s *link.Session) Connection {
	c := Connection{Peer: p, Van: s.Van()}
	if c.Van == "tcp" && strings.HasPrefix(s.Address(), "unix:") {
		c.Van = "unix"
	}
	if s.Dialled() != "" {
		c.Reason = m.grounds(c.Van, s.PassedOver())
	} else {
		c.Reason = m.told(c.Van, s.Peer().Reason)
	}
	return c
}

// tell is link.Options.Reason: what the peer at an address is told.
func (m *member) tell(address string, passed []link.PassedOver) string {
	return m.grounds(link.Scheme(address), passed)
}

// grounds says why this node, which has dialled, has taken a van.
func (m *member) grounds(van string, passed []link.PassedOver) string {
	if r, ok := m.plainly(van); ok {
		return r
	}
	for _, o := range passed {
		if link.Scheme(o.Address) == "shm" {
			return "shm: " + briefly(o)
		}
	}
	return "shm: not offered there"
}

// told says why a peer that has dialled this node has taken a van. What it says itself is quoted.
func (m *member) told(van, says string) string {
	if r, ok := m.plainly(van); ok {
		return r
	}
	if says == "" {
		return "shm: the worker had it not, and says why"
	}
	return says + ", says the worker"
}

// plainly gives reasons for which nobody else is needed.
func (m *member) plainly(van string) (reason string, ok bool) {
	switch {
	case van == "mem":
		return "same process", true
	case van == "shm":
		return "same machine", true
	case m.node.settings.Van != config.VanAuto:
		return "STEPVAN_VAN=" + string(m.node.settings.Van), true
	case m.shm.absent != nil:
		return "shm: " + plain(m.shm.absent), true
	}
	return "", false
}

// briefly leaves the address of the peer away, which is another for each peer.
func briefly(o link.PassedOver) string {
	local := strings.TrimPrefix(o.Address, "shm://")
	_, path, _ := strings.Cut(local, "/")
	return strings.NewReplacer(" with "+local, "", " /"+path, "").Replace(plain(o.Err))
}

// plain leaves the kind of error away, which says nothing to people.
func plain(err error) string {
	return strings.TrimSuffix(err.Error(), ": "+stepvan.ErrNotSupported.Error())
}

// Connections are those of one node.
type Connections []Connection

// String is one line, however many there are, with those of a kind together: "servers 0-2: shm (same
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
		if i == few {
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
	return fmt.Sprintf("%ss %s: %s (%s)", g.Peer.Role, ranges(g.ranks), g.Van, g.Reason)
}

// ranges writes numbers as "0-2, 5", the first few of them.
func ranges(ranks []int) string {
	slices.Sort(ranks)
	var parts []string
	for i := 0; i < len(ranks); {
		last := i
		for last+1 < len(ranks) && ranks[last+1] == ranks[last]+1 {
			last++
		}
		if len(parts) == few {
			return strings.Join(parts, ", ") + fmt.Sprintf(", ... (%d)", len(ranks))
		}
		part := strconv.Itoa(ranks[i])
		if last > i {
			part += "-" + strconv.Itoa(ranks[last])
		}
		parts = append(parts, part)
		i = last + 1
	}
	return strings.Join(parts, ", ")
}
