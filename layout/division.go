package layout

import (
	"cmp"
	"slices"

	"github.com/stepvan/stepvan/tensor"
)

// Division is a tensor cut into parts that have numbers. Each element belongs to one part, apart from copies. It does
// not change, and any goroutine may read it.
//
// The parts of a [Layout] have the indices of the mesh as numbers. Several indices have the same part where a dimension
// of the mesh replicates. The division then uses the number whose coordinates there are 0. The same holds for the ranks
// of a partial tensor as a target. As a source each of them ships a share of its part.
type Division struct {
	shape tensor.Shape
	axes  [tensor.MaxRank]axis
	grid  []digit // how a number is made of coordinates
	parts int
	last  int // the largest number that a move can name
	// partial says why the division cannot be a target. It is nil for most.
	partial error
}

// digit is a coordinate of a part: its number divided by step, modulo count.
type digit struct {
	step, count int
	dim         int // of the tensor
	weight      int // of the coordinate in the number of a list of the axis
}

// axis is one dimension of a division. It has the lists of all parts. Parts with different numbers may share a list.
type axis struct {
	spans []Span
	first []int32 // where each list begins in spans, and the end
	cells []int32 // what each list adds to the number of a part
}

func (a *axis) list(i int) []Span { return a.spans[a.first[i]:a.first[i+1]] }

// Divide makes the division of a tensor by l. A partial tensor is divided for sending: see [Division].
func (l Layout) Divide(shape tensor.Shape) (*Division, error) {
	return l.divide(shape, 0)
}

// divide has the shares of a partial tensor cut dimension dim.
func (l Layout) divide(shape tensor.Shape, dim int) (*Division, error) {
	if err := l.CheckShape(shape); err != nil {
		return nil, err
	}
	cuts := l.cuts()
	if shape.Rank() > 0 {
		cuts = append(cuts, l.shares(dim)...)
	}
	d := divide(shape, cuts, l.Mesh.Size())
	d.partial = l.CheckTarget()
	return d, nil
}

// Divide makes the division of a tensor by p.
func (p Partition) Divide(shape tensor.Shape) (*Division, error) {
	if err := p.CheckShape(shape); err != nil {
		return nil, err
	}
	return divide(shape, p.cuts(), p.Parts()), nil
}

func divide(shape tensor.Shape, cuts []cut, parts int) *Division {
	d := &Division{shape: shape, parts: parts, grid: make([]digit, 0, len(cuts))}
	for dim, n := range shape.Dims() {
		d.axes[dim] = makeAxis(cuts, dim, n)
		d.last += int(slices.Max(d.axes[dim].cells))
		weight := 1
		for i := len(cuts) - 1; i >= 0; i-- {
			if c := &cuts[i]; c.dim == dim {
				d.grid = append(d.grid, digit{c.step, c.count, dim, weight})
				weight *= c.count
			}
		}
	}
	return d
}

// makeAxis cuts dimension dim, which has n elements, level by level: what the first cut leaves is cut by the second.
func makeAxis(cuts []cut, dim int, n int64) axis {
	a := axis{first: []int32{0}, cells: []int32{0}}
	a.spans = add(nil, 0, Span{0, n, 0})
	a.first = append(a.first, int32(len(a.spans)))
	for i := range cuts {
		if c := &cuts[i]; c.dim == dim {
			a = a.cut(c, n)
		}
	}
	return a
}

// cut divides each list of a dimension of n elements.
func (a *axis) cut(c *cut, n int64) axis {
	lists := len(a.cells) * c.count
	next := axis{
		spans: make([]Span, 0, min(int64(lists*max(c.pieces, len(c.sizes))), n)),
		first: make([]int32, 1, lists+1),
		cells: make([]int32, 0, lists),
	}
	for i, cell := range a.cells {
		for k := range c.count {
			next.spans = c.apply(next.spans, len(next.spans), a.list(i), k)
			next.first = append(next.first, int32(len(next.spans)))
			next.cells = append(next.cells, cell+int32(k*c.step))
		}
	}
	return next
}

// Shape is the shape of the whole tensor.
func (d *Division) Shape() tensor.Shape { return d.shape }

// Parts is how many numbers there are, from 0.
func (d *Division) Parts() int { return d.parts }

// lists are the numbers of the lists of a part, one for each dimension of the tensor.
func (d *Division) lists(part int) (at [tensor.MaxRank]int32) {
	for _, g := range d.grid {
		at[g.dim] += int32(part / g.step % g.count * g.weight)
	}
	return at
}

// tile is a range of a dimension that belongs to the parts of one list.
type tile struct {
	Span
	cell int32
}

// tiles are the spans of all lists in the order of the whole. They neither overlap nor leave a gap.
func (a *axis) tiles() []tile {
	all := make([]tile, 0, len(a.spans))
	for i, cell := range a.cells {
		for _, s := range a.list(i) {
			all = append(all, tile{s, cell})
		}
	}
	byStart := func(x, y tile) int { return cmp.Compare(x.Start, y.Start) }
	if !slices.IsSortedFunc(all, byStart) {
		slices.SortFunc(all, byStart)
	}
	return all
}
