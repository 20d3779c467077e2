package postoffice

import "github.com/stepvan/stepvan"

// assign gives every member of a complete registry its final rank and position. Members that asked for a rank get it.
// The others get the lowest free one, in order of arrival, with the local rank that they asked for.
func (r *registry) assign() {
	s := &freePositions{r: r, positions: map[position]bool{}, ranks: map[stepvan.Rank]bool{}, first: map[LocalRank]int{}}
	for _, m := range r.members {
		if p, fixed := r.wanted(&m.want); fixed {
			s.take(m, p, m.want.Rank)
		}
	}
	// A member that needs a certain local rank chooses first: the others can sit anywhere.
	for _, picky := range []bool{true, false} {
		for _, m := range r.members {
			if m.want.Rank == AnyRank && (m.want.Instance != AnyLocalRank) == picky {
				s.give(m)
			}
		}
	}
}

// freePositions are the positions and ranks of one role that are still free. In every node
// as many ranks are free as positions, since a member takes one of each.
type freePositions struct {
	r         *registry
	positions map[position]bool     // taken
	ranks     map[stepvan.Rank]bool // taken
	first     map[LocalRank]int     // the node that may be the first with a free one, by the local rank that was asked for
}

func (s *freePositions) take(m *member, p position, rank stepvan.Rank) {
	s.positions[p], s.ranks[rank] = true, true
	m.info.Rank, m.info.NodeRank, m.info.LocalRank = rank, p.node, p.instance
	m.info.GroupSize = s.r.groupSize
	m.info.ID = nodeID(s.r.role, rank)
}

// give finds the first free position for m. Registration has checked that there is one.
func (s *freePositions) give(m *member) {
	for node := s.first[m.want.Instance]; node < s.r.nodes(); node++ {
		s.first[m.want.Instance] = node // the nodes before it have no such position left
		for i := range LocalRank(s.r.groupSize) {
			if p := (position{node, i}); !s.positions[p] && (m.want.Instance == AnyLocalRank || m.want.Instance == i) {
				s.take(m, p, s.rankOf(p))
				return
			}
		}
	}
}

// rankOf is the rank that usually belongs to a position, else a free one of its node.
func (s *freePositions) rankOf(p position) stepvan.Rank {
	base := stepvan.Rank(p.node * s.r.groupSize)
	if own := base + stepvan.Rank(p.instance); !s.ranks[own] {
		return own
	}
	for i := range stepvan.Rank(s.r.groupSize) {
		if !s.ranks[base+i] {
			return base + i
		}
	}
	return base // not reached: see freePositions
}
