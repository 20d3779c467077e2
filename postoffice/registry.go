package postoffice

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
)

// member is one node at the scheduler. The scheduler's lock guards it.
type member struct {
	conn conn
	want joinBody
	info Peer // Role, Host, PID from the start; rank, instance and ID are final once ranks are fixed

	opened   time.Time // its session
	seen     time.Time // last sign of life
	suspect  bool      // silent for more than half of the timeout
	ready    bool      // knows its peers
	stopping bool
	gone     bool
	left     bool   // gone on purpose
	reason   string // of gone

	rounds map[barrierKey]*passage
	shelf  shelf
}

// registered reports whether the node has said what it wants to be.
func (m *member) registered() bool { return m.info.Role != "" }

// position is one of those of a role: a local rank in a node.
type position struct {
	node     int
	instance LocalRank
}

// registry collects the members of one role until all have come, and gives them ranks.
type registry struct {
	role      stepvan.Role
	size      int // instances that are expected
	groupSize int
	members   []*member // in order of arrival
	reported  bool      // its members know their roles and ranks
	ready     int       // members that have confirmed it

}

func (r *registry) nodes() int      { return r.size / r.groupSize }
func (r *registry) complete() bool  { return len(r.members) == r.size }
func (r *registry) confirmed() bool { return r.ready == r.size }

// add registers m, or says why not and what to do.
func (r *registry) add(m *member) error {
	w := &m.want
	switch {
	case r.size == 0:
		return fmt.Errorf("this cluster has no %ss: set DMLC_ROLE there, or %s on every node", r.role, r.countName())
	case w.Rank >= stepvan.Rank(r.size):
		return fmt.Errorf("%s rank: too high (got %d, want 0 to %d): set DMLC_NODE_RANK, STEPMESH_GPU, DMLC_RANK_OFFSET or STEPVAN_RANK there, or %s on every node",
			r.role, w.Rank, r.size-1, r.countName())
	case w.Instance >= LocalRank(r.groupSize):
		return fmt.Errorf("instance: too high (got %d, want below DMLC_GROUP_SIZE, %d): set DMLC_INSTANCE_ID or DMLC_RANK_OFFSET there, or DMLC_GROUP_SIZE on every node", w.Instance, r.groupSize)
	}
	alike, err := r.compare(w)
	switch {
	case err != nil:
		return err
	case r.complete():
		return fmt.Errorf("all %d %s instances have registered already: set %s on every node, or do not start this one", r.size, r.role, r.countName())
	case alike == r.nodes():
		p, _ := r.wanted(w)
		return fmt.Errorf("all %d %s nodes have an instance %d already: give each instance of a node its own DMLC_INSTANCE_ID or STEPMESH_GPU",
			r.nodes(), r.role, p.instance)
	}
	r.members = append(r.members, m)
	return nil
}

// compare counts the members that have asked for the same local rank. Its error names one that has the same rank or
// position.
func (r *registry) compare(w *joinBody) (alike int, err error) {
	p, fixed := r.wanted(w)
	for _, o := range r.members {
		q, taken := r.wanted(&o.want)
		switch {
		case fixed && o.want.Rank == w.Rank:
			return 0, fmt.Errorf("%s rank %d is taken by %s: give each instance its own DMLC_NODE_RANK, STEPMESH_GPU or STEPVAN_RANK, or unset them to get ranks in order of arrival",
				r.role, w.Rank, o.info)
		case fixed && taken && p == q:
			return 0, fmt.Errorf("instance %d of %s node %d is taken by %s: give each instance of a node its own DMLC_INSTANCE_ID or STEPMESH_GPU",
				p.instance, r.role, p.node, o.info)
		case p.instance != AnyLocalRank && p.instance == q.instance:
			alike++
		}
	}
	return alike, nil
}

// wanted is the position that a registration asks for; fixed when it names a rank.
func (r *registry) wanted(w *joinBody) (p position, fixed bool) {
	p.instance = w.Instance
	if w.Rank == AnyRank {
		p.node = -1
		return p, false
	}
	p.node = int(w.Rank) / r.groupSize
	if p.instance == AnyLocalRank {
		p.instance = LocalRank(int(w.Rank) % r.groupSize)
	}
	return p, true
}

func (r *registry) remove(m *member) {
	r.members = slices.DeleteFunc(r.members, func(o *member) bool { return o == m })
}

// missing lists the ranks that no member has asked for, and how many instances are
// still to come: less than that when some leave the rank to the scheduler.
func (r *registry) missing() (free []int, count int) {
	taken := map[stepvan.Rank]bool{}
	for _, m := range r.members {
		taken[m.want.Rank] = true
	}
	for i := range r.size {
		if !taken[stepvan.Rank(i)] {
			free = append(free, i)
		}
	}
	return free, r.size - len(r.members)
}

// countName is the setting with the number of nodes of the role. ps-lite has no peers, and no name for their number.
func (r *registry) countName() string {
	if r.role == stepvan.RolePeer {
		return "STEPVAN_NUM_PEER"
	}
	return "DMLC_NUM_" + strings.ToUpper(string(r.role))
}
