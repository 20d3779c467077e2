package postoffice

import "github.com/stepvan/stepvan"

// assign gives every member of a complete registry its final rank and place:
// those who asked for a rank get it, the others the lowest that are free, in order
// of arrival, with the instance index that they asked for.
func (r *registry) assign() {
	s := newSeats(r)
	for _, m := range r.members {
		if p, fixed := r.wanted(&m.want); fixed {
			s.take(m, p, m.want.Rank)
		}
	}
	// Who needs a certain instance chooses first: the others can sit anywhere.
	for _, picky := range []bool{true, false} {
		for _, m := range r.members {
			if m.want.Rank == AnyRank && (m.want.Instance != AnyLocalRank) == picky {
				s.seat(m)
			}
		}
	}
}

// seats are the places and ranks of one role that are still free. In every node
// as many ranks are free as places, since whoever takes one takes the other.
type seats struct {
	r      *registry
	places map[place]bool        // taken
	ranks  map[stepvan.Rank]bool // taken
	first  map[LocalRank]int
}

func newSeats(r *registry) *seats {
	return &seats{r: r, places: map[place]bool{}, ranks: map[stepvan.Rank]bool{}, first: map[LocalRank]int{}}
}

func (s *seats) take(m *member, p place, rank stepvan.Rank) {
	s.places[p], s.ranks[rank] = true, true
	m.info.Rank, m.info.NodeRank, m.info.LocalRank = rank, p.node, p.instance
	m.info.GroupSize = s.r.groupSize
	m.info.ID = nodeID(s.r.role, rank)
}

// seat finds the first free place for m. Registration has checked that there is one.
func (s *seats) seat(m *member) {
	for node := s.first[m.want.Instance]; node < s.r.nodes(); node++ {
		s.first[m.want.Instance] = node // what is behind has no such place any more
		for i := range LocalRank(s.r.groupSize) {
			if p := (place{node, i}); !s.places[p] && (m.want.Instance == AnyLocalRank || m.want.Instance == i) {
				s.take(m, p, s.rankOf(p))
				return
			}
		}
	}
}

// rankOf is the rank that usually belongs to a place, else a free one of its node.
func (s *seats) rankOf(p place) stepvan.Rank {
	base := stepvan.Rank(p.node * s.r.groupSize)
	if own := base + stepvan.Rank(p.instance); !s.ranks[own] {
		return own
	}
	for i := range stepvan.Rank(s.r.groupSize) {
		if !s.ranks[base+i] {
			return base + i
		}
	}
	return base // not reached: see seats
}
