package postoffice

import (
	"fmt"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/text"
)

// membership has the members of the cluster, by role. The scheduler's lock guards it.
type membership struct {
	o        *SchedulerOptions
	self     *member // the scheduler as a member of barriers
	roles    map[stepvan.Role]*registry
	alive    int // registered and not gone
	stopping int // of those, in Stop
}

func newMembership(o *SchedulerOptions) membership {
	c := membership{o: o, roles: map[stepvan.Role]*registry{}}
	for role, size := range o.sizes() {
		c.roles[role] = &registry{role: role, size: size, groupSize: o.GroupSize}
	}
	c.self = &member{info: Peer{
		ID: SchedulerID, Role: stepvan.RoleScheduler, Incarnation: newIncarnation(), Host: o.Host, PID: o.PID, GroupSize: o.GroupSize,
	}}
	return c
}

func (c *membership) expected() int { return c.o.Workers + c.o.Servers + c.o.Peers }

// living lists the members that are not gone, by role and then arrival.
func (c *membership) living() []*member {
	out := make([]*member, 0, c.alive)
	for role := range c.o.sizes() {
		for _, m := range c.roles[role].members {
			if !m.gone {
				out = append(out, m)
			}
		}
	}
	return out
}

// peersOf lists the instances that n talks to, by rank, and n itself if it is a peer.
func (c *membership) peersOf(n Peer) []Peer {
	var out []Peer
	for role := range c.o.sizes() {
		for _, m := range c.roles[role].members {
			if lists(c.o.Pairing, n, m.info) {
				out = append(out, m.info)
			}
		}
	}
	slices.SortFunc(out, byRank)
	return out
}

// quorum is how many instances, or nodes, complete a round.
func (c *membership) quorum(k barrierKey) int {
	n := 0
	if k.Group.Has(stepvan.RoleScheduler) {
		n = 1
	}
	for role, size := range c.o.sizes() {
		switch {
		case !k.Group.Has(role):
		case k.Instances:
			n += size
		default:
			n += size / c.o.GroupSize
		}
	}
	return n
}

// unregistered names the ranks that have not registered.
func (c *membership) unregistered() string {
	var all []string
	for _, role := range slices.Backward(roles[1:]) {
		free, count := c.roles[role].missing()
		switch {
		case count == 0:
		case count == len(free):
			all = append(all, fmt.Sprintf("%s %s", role, text.Ranges(free, maxListed)))
		default:
			all = append(all, fmt.Sprintf("%d more of %s %s", count, role, text.Ranges(free, maxListed)))
		}
	}
	return conjunction(all) + ": not registered yet" + inBrackets(c.o.Meeting)
}

// unconfirmed names the members that have not confirmed their peers.
func (c *membership) unconfirmed() string {
	silent := only(c.living(), func(m *member) bool { return !m.ready && c.roles[m.info.Role].reported })
	return instances(silent) + ": registered, but has not confirmed its peers"
}

// absent names the members that have not entered a round.
func (c *membership) absent(k barrierKey, r *round) string {
	in := map[*member]bool{}
	for _, m := range r.in {
		in[m] = true
	}
	return instances(only(append([]*member{c.self}, c.living()...), func(m *member) bool {
		here := in[m] || (!k.Instances && r.nodes[nodeKey{m.info.Role, m.info.NodeRank}] > 0)
		return k.Group.Has(m.info.Role) && !here
	}))
}

// only returns the members for which keep is true.
func only(members []*member, keep func(*member) bool) []*member {
	return slices.DeleteFunc(members, func(m *member) bool { return !keep(m) })
}
