package layout

import (
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Planner tells which boxes of the parts of one division the parts of another need. Every element of a destination is
// in one box. It does not change, and any goroutine may read it.
//
// A planner merges the lists of each dimension once. [Planner.Assign] only combines the results. So it costs little
// more than the moves that it appends.
type Planner struct {
	to   *Division
	last int // the largest number of a part of the source
	axes [tensor.MaxRank]meeting
}

// meeting has the segments of each list of the destination in one dimension.
type meeting struct {
	segments []segment
	first    []int32
}

// NewPlanner refuses divisions of tensors that differ in shape, and a target that is partial.
func NewPlanner(from, to *Division) (*Planner, error) {
	if err := sameShape(from.shape, to.shape); err != nil {
		return nil, err
	}
	if to.partial != nil {
		return nil, to.partial
	}
	p := &Planner{to: to, last: from.last}
	for d := range to.shape.Rank() {
		a, tiles := &to.axes[d], from.axes[d].tiles()
		m := meeting{
			segments: make([]segment, 0, len(a.spans)+len(tiles)),
			first:    make([]int32, 1, len(a.cells)+1),
		}
		for i := range a.cells {
			m.segments = match(m.segments, tiles, a.list(i))
			m.first = append(m.first, int32(len(m.segments)))
		}
		p.axes[d] = m
	}
	return p, nil
}

func sameShape(src, dst tensor.Shape) error {
	if src != dst {
		return errs.Invalid("layout: size mismatch (got %s at the source, %s at the destination): both need the shape of the whole tensor", src, dst)
	}
	return nil
}

// Redistribute plans the way from one layout to another. It refuses a partial target. [Planner.Assign] takes
// the sources that [Layout.Sources] of from returns. What a partial source sends is reduced first: see
// [Layout.Reduction].
func Redistribute(from, to Layout, shape tensor.Shape) (*Planner, error) {
	dst, err := to.Divide(shape)
	if err != nil {
		return nil, err
	}
	src, err := from.divide(shape, to.outermost())
	if err != nil {
		return nil, err
	}
	return NewPlanner(src, dst)
}

// outermost is the first dimension of the tensor that the layout cuts. Partial sources are shared out along it, so that
// each box has few sources.
func (l *Layout) outermost() int {
	dim := tensor.MaxRank
	for _, p := range l.Placements {
		if p.cuts() {
			dim = min(dim, p.Dim)
		}
	}
	return dim % tensor.MaxRank // 0 when nothing is cut
}

// Assign appends the moves that give the destination with number part all its elements, in the order of their place
// there.
func (p *Planner) Assign(part int, from Sources, out *Moves) error {
	if part < 0 || part >= p.to.parts {
		return errs.Invalid("layout: no destination has this number (got %d, want 0 to %d)", part, p.to.parts-1)
	}
	if err := from.check(p.last); err != nil {
		return err
	}
	at := p.to.lists(part)
	var lists [tensor.MaxRank][]segment
	dims := p.to.shape.Rank()
	for d := range dims {
		m := &p.axes[d]
		lists[d] = m.segments[m.first[at[d]]:m.first[at[d]+1]]
	}
	return out.product(&lists, dims, from)
}

// Assign appends the moves that give a part all its elements from the parts of d, in the order of their place there. It
// is for a destination that is not a part of a division. For others a [Planner] costs less.
func (d *Division) Assign(dst *Part, from Sources, out *Moves) error {
	if err := sameShape(d.shape, dst.shape); err != nil {
		return err
	}
	if err := from.check(d.last); err != nil {
		return err
	}
	dims := d.shape.Rank()
	out.work.segments = out.work.segments[:0]
	for i := range dims {
		out.work.segments = match(out.work.segments, d.axes[i].tiles(), dst.Spans(i))
		out.work.first[i+1] = len(out.work.segments)
	}
	lists := out.work.lists(dims)
	return out.product(&lists, dims, from)
}
