package layout

import (
	"cmp"
	"slices"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Part is what one rank has of a tensor: the product of one list of spans for each dimension. It does not change once
// it is made, and copies share its lists. The zero value is the whole of a scalar.
type Part struct {
	shape tensor.Shape // of the whole
	local tensor.Shape
	spans []Span // of all dimensions, one after the other
	first [tensor.MaxRank + 1]int32
}

// Whole is the part of a rank that has all elements.
func Whole(shape tensor.Shape) (Part, error) {
	if err := checkShape(shape); err != nil {
		return Part{}, err
	}
	return build(shape, nil, nil), nil
}

// NewPart makes a part of any lists of spans, one for each dimension of shape. The lists may be in any order. The spans
// of a list must not share elements of the whole, and their places must fill the part without gaps. The lists are
// copied.
func NewPart(shape tensor.Shape, lists ...[]Span) (Part, error) {
	p := Part{shape: shape}
	if err := checkShape(shape); err != nil {
		return Part{}, err
	}
	if len(lists) != shape.Rank() {
		return Part{}, errs.Invalid("layout: lists of spans and dimensions differ in number (got %d lists for %s, want %d)",
			len(lists), shape, shape.Rank())
	}
	total := 0
	for _, list := range lists {
		total += len(list)
	}
	if total > maxSpans {
		return Part{}, errs.Invalid("layout: part has too many spans (got %d, want at most %d)", total, maxSpans)
	}
	p.spans = make([]Span, 0, total)
	for d, list := range lists {
		if err := p.append(d, list); err != nil {
			return Part{}, err
		}
	}
	p.measure()
	return p, nil
}

// append checks the list of dimension d and adds it.
func (p *Part) append(d int, list []Span) error {
	sorted := slices.Clone(list)
	sortByLocal(sorted)
	end := int64(0)
	for _, s := range sorted {
		if s.Start < 0 || s.Stop < s.Start || s.Stop > p.shape.Dim(d) {
			return errs.Invalid("layout: a span of dimension %d leaves the tensor (got [%d, %d), want it within [0, %d))",
				d, s.Start, s.Stop, p.shape.Dim(d))
		}
		if s.Local != end {
			return errs.Invalid("layout: spans of dimension %d do not fill the part (got one at offset %d, want %d)", d, s.Local, end)
		}
		if end += s.size(); end > p.shape.Dim(d) {
			return errs.Invalid("layout: spans of dimension %d have more elements than the tensor (got %d, want at most %d)",
				d, end, p.shape.Dim(d))
		}
	}
	slices.SortFunc(sorted, func(a, b Span) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Stop, b.Stop)) })
	floor := len(p.spans)
	stop := int64(0)
	for _, s := range sorted {
		if s.size() > 0 && s.Start < stop {
			return errs.Invalid("layout: spans of dimension %d overlap at %d: give each element one place", d, s.Start)
		}
		stop = max(stop, s.Stop)
		p.spans = add(p.spans, floor, s)
	}
	p.first[d+1] = int32(len(p.spans))
	return nil
}

func sortByLocal(list []Span) {
	slices.SortFunc(list, func(a, b Span) int { return cmp.Or(cmp.Compare(a.Local, b.Local), cmp.Compare(a.size(), b.size())) })
}

// maxExtent is how long a dimension may be, so that sums of two do not overflow.
const maxExtent = 1 << 62

// checkShape refuses what no tensor can have.
func checkShape(shape tensor.Shape) error {
	if !shape.Valid() {
		return errs.Invalid("layout: the shape is invalid: make it with tensor.MakeShape, which says why")
	}
	for d, n := range shape.Dims() {
		if n > maxExtent {
			return errs.Invalid("layout: dimension %d is too long (got %d elements, want at most %d)", d, n, int64(maxExtent))
		}
	}
	return nil
}

// build makes the part that the cuts leave the rank with these coordinates. The caller has checked all of it.
func build(shape tensor.Shape, cuts []cut, coordinates []int) Part {
	p := Part{shape: shape, spans: make([]Span, 0, shape.Rank())}
	var list, next []Span
	for d, n := range shape.Dims() {
		list = add(list[:0], 0, Span{0, n, 0})
		for i := range cuts {
			if c := &cuts[i]; c.dim == d && !c.spread {
				next = c.apply(next[:0], 0, list, coordinates[c.axis])
				list, next = next, list
			}
		}
		p.spans = append(p.spans, list...)
		p.first[d+1] = int32(len(p.spans))
	}
	p.measure()
	return p
}

// measure fills in the extents of the part.
func (p *Part) measure() {
	var dims [tensor.MaxRank]int64
	rank := p.shape.Rank()
	for d := range rank {
		for _, s := range p.Spans(d) {
			dims[d] += s.size()
		}
	}
	p.local.SetDims(dims[:rank]...)
}

// Shape is the shape of the whole tensor.
func (p *Part) Shape() tensor.Shape { return p.shape }

// Local is the shape of the part.
func (p *Part) Local() tensor.Shape { return p.local }

// Elems is the number of elements of the part.
func (p *Part) Elems() int64 {
	n, _ := p.local.Elems() // at most that of the whole
	return n
}

// Spans returns the list of dimension dim, ordered by Start. Spans that touch in the whole and in the part are joined.
// The caller must not write to the slice.
func (p *Part) Spans(dim int) []Span { return p.spans[p.first[dim]:p.first[dim+1]] }

// Equal reports whether both are the same part of tensors of the same shape, in the same order.
func (p *Part) Equal(q *Part) bool {
	return p.shape == q.shape && p.first == q.first && slices.Equal(p.spans, q.spans)
}
