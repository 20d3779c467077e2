package layout

import (
	"slices"

	"github.com/stepvan/stepvan/internal/errs"
)

// cut divides one dimension of a tensor among some ranks.
type cut struct {
	dim   int
	count int // of ranks
	// pieces is how many each rank gets. The dimension is chunked into count x pieces segments, and rank i has the
	// segments i, i+count and so on.
	pieces int
	sizes  []int64 // of the blocks of each rank, which are divided one by one; nil: there is one block
	axis   int     // the coordinate that says which of the ranks it is
	step   int     // by how much the number of the part grows with that coordinate
	equal  bool    // unequal segments are refused
	spread bool    // the part stays whole in memory, and each rank ships a share of it
}

// apply appends to out what rank index has of list. Spans of out before floor belong to another list.
func (c *cut) apply(out []Span, floor int, list []Span, index int) []Span {
	if len(list) == 0 {
		return out
	}
	from := cursor{list: list}
	base, local := list[0].Local, int64(0)
	n := length(list) - base
	if c.sizes != nil {
		for _, size := range c.sizes {
			lo := int64(c.count)*local + int64(index)*size
			out = from.take(out, floor, lo, lo+size, local)
			local += size
		}
		return out
	}
	segment := (n-1)/int64(c.count*c.pieces) + 1
	for k := range c.pieces {
		lo := int64(k*c.count+index) * segment
		if lo >= n {
			break
		}
		hi := min(lo+segment, n)
		if c.spread {
			local = base + lo
		}
		out = from.take(out, floor, base+lo, base+hi, local)
		local += hi - lo
	}
	return out
}

// lengths replaces the extents that parts may have before the cut by those that they may have after it. It returns an
// extent that the cut refuses.
func (c *cut) lengths(all []int64) (after []int64, refused int64, ok bool) {
	for _, n := range all {
		if c.sizes != nil {
			var local int64
			for _, size := range c.sizes {
				local += size
			}
			if local*int64(c.count) != n {
				return nil, n, false
			}
			after = append(after, local)
			continue
		}
		if c.equal && n%int64(c.count*c.pieces) != 0 {
			return nil, n, false
		}
		after = append(after, c.extents(n)...)
	}
	slices.Sort(after)
	return slices.Compact(after), 0, true
}

// extents are the lengths of the parts of n elements. All ranks before the owner of the short segment
// have the same, and so have all behind it.
func (c *cut) extents(n int64) (all []int64) {
	if n == 0 {
		return []int64{0}
	}
	total := int64(c.count * c.pieces)
	segment := (n-1)/total + 1
	full, rest := n/segment, n%segment
	count := int64(c.count)
	owner := full % count // of the short segment, or of the first empty one
	for _, i := range []int64{owner - 1, owner, owner + 1} {
		if i < 0 || i >= count {
			continue
		}
		whole := full/count + b2i(i < owner)
		all = append(all, whole*segment+rest*b2i(i == owner && full < total))
	}
	return all
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// checkCuts refuses cuts that some rank could not have of dimension dim, which has n elements. The answer is the same
// for every rank. cuts may have other dimensions too.
func checkCuts(cuts []cut, dim int, n int64) error {
	strict, spans, total := false, 1, 1
	for i := range cuts {
		if c := &cuts[i]; c.dim == dim {
			strict = strict || c.equal || c.sizes != nil
			each := max(c.pieces, len(c.sizes), 1)
			spans *= each
			total *= each * c.count
			if spans > maxSpans || total > maxSegments {
				return errs.Invalid("layout: dimension %d is cut too often (want at most %d spans in a part, %d in all)",
					dim, maxSpans, maxSegments)
			}
		}
	}
	if !strict {
		return nil
	}
	all := []int64{n}
	for i := range cuts {
		c := &cuts[i]
		if c.dim != dim || c.spread {
			continue
		}
		after, refused, ok := c.lengths(all)
		if !ok {
			return c.refuse(refused)
		}
		all = after
	}
	return nil
}

func (c *cut) refuse(n int64) error {
	if c.sizes != nil {
		return errs.Invalid("layout: dimension %d does not match its partition_sizes (got %d elements, want %d ranks with %v each)",
			c.dim, n, c.count, c.sizes)
	}
	return errs.Invalid("layout: StridedShard of dimension %d is uneven (got %d elements, want a multiple of %d x %d): pad the dimension or use Shard",
		c.dim, n, c.pieces, c.count)
}
