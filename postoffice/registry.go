package postoffice

import (
	"fmt"
	"slices"
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
}

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

	byRank     map[stepvan.Rank]*member // that asked for a rank
	byPosition map[position]*member     // by the position that this rank gives
	indices    map[LocalRank]int        // how many asked for a local rank
}

func newRegistry(role stepvan.Role, size, groupSize int) *registry {
	return &registry{
		role: role, size: size, groupSize: groupSize,
		byRank: map[stepvan.Rank]*member{}, byPosition: map[position]*member{}, indices: map[LocalRank]int{},
	}
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
		return fmt.Errorf("%s rank %d is too high, there are %d %s instances (ranks 0 to %d): set DMLC_NODE_RANK, STEPMESH_GPU, DMLC_RANK_OFFSET or STEPVAN_RANK there, or %s on every node",
			r.role, w.Rank, r.size, r.role, r.size-1, r.countName())
	case w.Instance >= LocalRank(r.groupSize):
		return fmt.Errorf("instance %d is too high, DMLC_GROUP_SIZE is %d: set DMLC_INSTANCE_ID or DMLC_RANK_OFFSET there, or DMLC_GROUP_SIZE on every node", w.Instance, r.groupSize)
	}
	p, fixed := r.wanted(w)
	if fixed {
		if err := r.clash(w.Rank, p); err != nil {
			return err
		}
	}
	switch {
	case r.complete():
		return fmt.Errorf("all %d %s instances have registered already, this one is too many: set %s on every node, or do not start it", r.size, r.role, r.countName())
	case p.instance != AnyLocalRank && r.indices[p.instance] == r.nodes():
		return fmt.Errorf("all %d %s nodes have an instance %d already, this one is too many: give each instance of a node its own DMLC_INSTANCE_ID or STEPMESH_GPU",
			r.nodes(), r.role, p.instance)
	}
	r.admit(m, p, fixed)
	return nil
}

func (r *registry) admit(m *member, p position, fixed bool) {
	r.members = append(r.members, m)
	r.indices[p.instance]++
	if fixed {
		r.byRank[m.want.Rank], r.byPosition[p] = m, m
	}
}

// clash finds the member that has a rank or position already.
func (r *registry) clash(rank stepvan.Rank, p position) error {
	if o := r.byRank[rank]; o != nil {
		return fmt.Errorf("%s rank %d is taken by %s: give each instance its own DMLC_NODE_RANK, STEPMESH_GPU or STEPVAN_RANK, or unset them to get ranks in order of arrival",
			r.role, rank, o.info)
	}
	if o := r.byPosition[p]; o != nil {
		return fmt.Errorf("instance %d of %s node %d is taken by %s: give each instance of a node its own DMLC_INSTANCE_ID or STEPMESH_GPU",
			p.instance, r.role, p.node, o.info)
	}
	return nil
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
	i := slices.Index(r.members, m)
	if i < 0 {
		return
	}
	r.members = slices.Delete(r.members, i, i+1)
	p, fixed := r.wanted(&m.want)
	r.indices[p.instance]--
	if fixed {
		delete(r.byRank, m.want.Rank)
		delete(r.byPosition, p)
	}
}

// missing lists the ranks that no member has asked for, and how many instances are
// still to come: less than that when some leave the rank to the scheduler.
func (r *registry) missing() (free []int, count int) {
	for i := range r.size {
		if r.byRank[stepvan.Rank(i)] == nil {
			free = append(free, i)
		}
	}
	return free, r.size - len(r.members)
}

func (r *registry) countName() string {
	switch r.role {
	case stepvan.RoleWorker:
		return "DMLC_NUM_WORKER"
	case stepvan.RoleServer:
		return "DMLC_NUM_SERVER"
	}
	return "the number of " + string(r.role) + "s"
}
