package layout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Holder is a rank and the part of a tensor that it has.
type Holder struct {
	Rank stepvan.Rank
	Part *Part
}

// Holders are the ranks that have parts of a tensor, whatever the parts are. Parts may overlap. Use it where the
// sources have no common layout. A [Planner] costs less where they have one. It does not change, and any goroutine may
// read it.
type Holders struct {
	shape tensor.Shape
	all   []Holder
}

// NewHolders refuses parts of tensors that differ in shape, and a rank that occurs twice.
func NewHolders(all []Holder) (*Holders, error) {
	if len(all) == 0 {
		return nil, errs.Invalid("layout: a source is missing: no rank has a part")
	}
	ranks := make([]stepvan.Rank, len(all))
	for i, h := range all {
		ranks[i] = h.Rank
		if h.Part.shape != all[0].Part.shape {
			return nil, errs.Invalid("layout: size mismatch (got %s at rank %d, %s at rank %d): the sources must name the same whole",
				h.Part.shape, h.Rank, all[0].Part.shape, all[0].Rank)
		}
	}
	if err := distinct("the list of holders", ranks); err != nil {
		return nil, err
	}
	return &Holders{shape: all[0].Part.shape, all: slices.Clone(all)}, nil
}

// Limits of a destination whose elements are split among overlapping holders.
const (
	maxBlocks = 1 << 20 // that are left at a time
	maxSteps  = 1 << 26 // comparisons of a block with a move, which take seconds
)

// Assign appends the moves that give the destination each of its elements once. Each element comes from the first
// holder that has it. The list begins with the destination's own rank, if that is a holder. The others follow from
// holder number target mod n on, and around. So destinations spread the load over copies. The error names a block of
// elements that no holder has.
func (h *Holders) Assign(dst *Part, rank stepvan.Rank, target int, out *Moves) error {
	return h.assign(dst, rank, target, out, maxSteps)
}

// assign is Assign with a limit of steps.
func (h *Holders) assign(dst *Part, rank stepvan.Rank, target int, out *Moves, steps int) error {
	if err := sameShape(h.shape, dst.shape); err != nil {
		return err
	}
	if target < 0 {
		return errs.Invalid("layout: number of the target is negative (got %d, want 0 or more)", target)
	}
	left := remainder{steps: steps}
	if dst.Elems() > 0 {
		left.blocks = []block{wholeBlock(dst)}
	}
	self := slices.IndexFunc(h.all, func(x Holder) bool { return x.Rank == rank })
	if self >= 0 {
		if err := left.serve(&h.all[self], dst, out); err != nil {
			return err
		}
	}
	for i := 0; i < len(h.all) && len(left.blocks) > 0; i++ {
		if at := (target%len(h.all) + i) % len(h.all); at != self {
			if err := left.serve(&h.all[at], dst, out); err != nil {
				return err
			}
		}
	}
	if len(left.blocks) > 0 {
		return missing(dst, &left.blocks[0])
	}
	return nil
}

// remainder is what a destination still needs.
type remainder struct {
	blocks []block
	steps  int // that it may still take
}

// block is a range of offsets of a destination in each dimension.
type block struct{ lo, hi [tensor.MaxRank]int64 }

func wholeBlock(p *Part) (b block) {
	copy(b.hi[:], p.local.Dims())
	return b
}

// serve appends the moves of what the holder has of the blocks, and keeps the blocks that are left.
func (r *remainder) serve(h *Holder, dst *Part, out *Moves) error {
	first := out.Len()
	if err := out.Overlap(h.Part, dst, h.Rank); err != nil {
		return err
	}
	if first == out.Len() {
		return nil
	}
	found := make([]Move, 0, out.Len()-first)
	for i := first; i < out.Len(); i++ {
		found = append(found, out.At(i))
	}
	out.truncate(first)
	for i := range found {
		v := &found[i]
		r.steps -= len(r.blocks)
		var rest []block
		for k := range r.blocks {
			shared, ok := r.blocks[k].intersect(v)
			if !ok {
				rest = append(rest, r.blocks[k])
				continue
			}
			out.push(v, &shared)
			rest = r.blocks[k].subtract(rest, &shared, v.Rank)
		}
		if r.blocks = rest; len(rest) > maxBlocks || r.steps < 0 {
			return errs.Invalid("layout: the holders split the destination into too many blocks (want at most %d, and few that overlap): "+
				"give them parts of one layout", maxBlocks)
		}
	}
	return nil
}

// intersect is what the block has of a move.
func (b *block) intersect(v *Move) (shared block, ok bool) {
	for d := range v.Rank {
		shared.lo[d] = max(b.lo[d], v.Dst[d])
		shared.hi[d] = min(b.hi[d], v.Dst[d]+v.Extent[d])
		if shared.lo[d] >= shared.hi[d] {
			return shared, false
		}
	}
	return shared, true
}

// subtract appends what is left of b without a block inside of it: at most two blocks for each dimension.
func (b *block) subtract(rest []block, without *block, dims int) []block {
	left := *b
	for d := range dims {
		if left.lo[d] < without.lo[d] {
			before := left
			before.hi[d] = without.lo[d]
			rest = append(rest, before)
		}
		if without.hi[d] < left.hi[d] {
			after := left
			after.lo[d] = without.hi[d]
			rest = append(rest, after)
		}
		left.lo[d], left.hi[d] = without.lo[d], without.hi[d]
	}
	return rest
}

// push appends the part of a move that lies in a block of the destination.
func (m *Moves) push(v *Move, b *block) {
	m.heads = append(m.heads, head{len(m.boxes), int32(v.Source), int32(v.Rank)})
	for d := range v.Rank {
		m.boxes = append(m.boxes, v.Src[d]+b.lo[d]-v.Dst[d])
	}
	m.boxes = append(m.boxes, b.lo[:v.Rank]...)
	for d := range v.Rank {
		m.boxes = append(m.boxes, b.hi[d]-b.lo[d])
	}
}

// truncate keeps the first n moves.
func (m *Moves) truncate(n int) {
	m.boxes = m.boxes[:m.heads[n].box]
	m.heads = m.heads[:n]
}

// missing names the first elements of a block, by their place in the whole tensor.
func missing(dst *Part, b *block) error {
	var ranges []string
	for d := range dst.shape.Rank() {
		for _, s := range dst.Spans(d) {
			if s.Local <= b.lo[d] && b.lo[d] < s.Local+s.size() {
				start := s.Start + b.lo[d] - s.Local
				ranges = append(ranges, fmt.Sprintf("%d:%d", start, min(s.Stop, start+b.hi[d]-b.lo[d])))
			}
		}
	}
	return errs.Invalid("layout: a source is missing: no rank has elements [%s] of the tensor of shape %s", strings.Join(ranges, ", "), dst.shape)
}
