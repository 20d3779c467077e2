package layout

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// Sources says which rank has each part of a division: part i is at Ranks[Base+i]. Without Ranks it is at rank Base+i.
type Sources struct {
	Ranks []stepvan.Rank
	Base  int
}

func (s *Sources) rank(part int) stepvan.Rank {
	if s.Ranks == nil {
		return stepvan.Rank(s.Base + part)
	}
	return s.Ranks[s.Base+part]
}

// check refuses sources that lack a rank for the parts up to number last.
func (s *Sources) check(last int) error {
	if s.Base < 0 || s.Base > maxRank-last {
		return errs.Invalid("layout: base of the sources is out of range (got %d, want 0 to %d)", s.Base, maxRank-last)
	}
	if s.Ranks != nil && s.Base+last >= len(s.Ranks) {
		return errs.Invalid("layout: a source is missing: no rank has part %d (got %d ranks, want %d)", len(s.Ranks)-s.Base, len(s.Ranks)-s.Base, last+1)
	}
	return nil
}

// Sources is the rule MeshOrder of the tensor bus: from which ranks of l the target with number target reads. Of the
// ranks that have the same elements it is the one with the coordinates of index target mod size along the dimensions
// that replicate. So the copies share the load. The number must not be negative.
//
// The ranks of a partial tensor share the work in another way. Each of them reduces and sends a share of its own to all
// targets, and no element is reduced twice for targets of the same copy.
func (l Layout) Sources(target int) Sources {
	index, base := target%l.Mesh.Size(), 0
	for i := len(l.Placements) - 1; i >= 0; i-- {
		n := l.Mesh.Dims[i]
		if l.Placements[i].Kind == Replicated {
			base += index % n * l.Mesh.step(i)
		}
		index /= n
	}
	return Sources{l.Mesh.Ranks, base}
}

// Reduction says how the values of a partial tensor come about.
type Reduction struct {
	// Members are the indices of the ranks whose values are reduced, in mesh order. Their parts are the same, so an
	// element has the same offset at each. Members of several partial dimensions are in one list, in row-major order.
	Members []int
	// Counts and Ops have the extent and the reduction of each partial dimension, outermost first. Avg divides the sum
	// by the count of its dimension. Where the reductions differ, reduce the outermost dimension first. Sum and Avg
	// commute. For other mixtures torch 2.9 takes the innermost first where a dimension shards, and torch 2.15 refuses
	// them.
	Counts []int
	Ops    []Op
}

// Reduction is the group of the rank at index. It has no members when l is not partial.
func (l Layout) Reduction(index int) (r Reduction) {
	coordinates := l.Mesh.Coordinates(index)
	total := 1
	for i, p := range l.Placements {
		if p.Kind == Reducible {
			coordinates[i] = 0
			total *= l.Mesh.Dims[i]
			r.Counts, r.Ops = append(r.Counts, l.Mesh.Dims[i]), append(r.Ops, p.Op)
		}
	}
	if r.Ops == nil {
		return r
	}
	r.Members = make([]int, total)
	base := l.Mesh.Index(coordinates)
	for k := range r.Members {
		r.Members[k] = base
		for i, rest := len(l.Placements)-1, k; i >= 0; i-- {
			if l.Placements[i].Kind == Reducible {
				r.Members[k] += rest % l.Mesh.Dims[i] * l.Mesh.step(i)
				rest /= l.Mesh.Dims[i]
			}
		}
	}
	return r
}
