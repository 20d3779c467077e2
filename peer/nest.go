package peer

import (
	"github.com/stepvan/stepvan/internal/strided"
)

// nest is the loops over one view or two, in the order of the shape, outermost first. Elements have numbers in that
// order, whatever the strides are.
type nest struct {
	rank int
	dims [strided.MaxRank]strided.Dim // the steps in bytes
}

func (n *nest) loops() []strided.Dim { return n.dims[:n.rank] }

// nestOf makes the loops over a view of this end, which has elements. Both steps are the steps of the view.
func nestOf(f *form) (n nest) {
	var buffer [strided.MaxRank]loop
	size := int64(f.dtype.Size())
	for _, l := range f.loops(buffer[:0]) {
		n.dims[n.rank] = strided.Dim{Extent: l.extent, To: l.stride * size, From: l.stride * size}
		n.rank++
	}
	return n
}

// toStream has the elements go to a stream, one behind the other, with so many bytes each.
func (n nest) toStream(size int64) nest {
	for i := n.rank - 1; i >= 0; i-- {
		n.dims[i].To = size
		size *= n.dims[i].Extent
	}
	return n
}

// fromStream has the elements come from a stream, as toStream does the other way round.
func (n nest) fromStream(size int64) nest {
	for i := n.rank - 1; i >= 0; i-- {
		n.dims[i].From = size
		size *= n.dims[i].Extent
	}
	return n
}

// within has the elements stay where they are: both steps are the steps of the destination.
func (n nest) within() nest {
	for i := range n.rank {
		n.dims[i].From = n.dims[i].To
	}
	return n
}

// whole returns the largest number of elements, at most so many, that are whole steps of a loop. A range of that many,
// which begins with a step, is one box.
func (n *nest) whole(most int64) int64 {
	step := int64(1)
	for i := n.rank - 1; i >= 0; i-- {
		next := step * n.dims[i].Extent
		if next > most {
			break
		}
		step = next
	}
	return max(1, most/step*step)
}

// boxes are some elements of a nest that follow one another, as few boxes as possible.
type boxes struct {
	nest     *nest
	lo, hi   int64 // numbers of the elements that are left
	rank     int
	dims     [strided.MaxRank]strided.Dim
	to, from int64 // where the box begins, from the first element of the nest, in bytes
}

// between returns the boxes of elements lo to hi.
func (n *nest) between(lo, hi int64) boxes { return boxes{nest: n, lo: lo, hi: hi} }

// next goes to the next box. It returns false at the end. Budget: 0 allocations.
func (b *boxes) next() bool {
	if b.lo >= b.hi {
		return false
	}
	n := b.nest
	b.to, b.from, b.rank = 0, 0, 0
	// The box is so many steps of the outermost loop of which a step begins here and ends in the range.
	loop, inner, steps := n.rank, int64(1), int64(1)
	step, rest, aligned := int64(1), b.lo, true
	for i := n.rank - 1; i >= 0; i-- {
		d := &n.dims[i]
		at := rest % d.Extent
		b.to, b.from = b.to+at*d.To, b.from+at*d.From
		if aligned && b.hi-b.lo >= step {
			loop, inner = i, step
			steps = min(d.Extent-at, (b.hi-b.lo)/step)
		}
		aligned = aligned && at == 0
		rest /= d.Extent
		step *= d.Extent
	}
	if loop < n.rank {
		b.rank = copy(b.dims[:], n.dims[loop:n.rank])
		b.dims[0].Extent = steps
	}
	b.lo += steps * inner
	return true
}

// walk is the loops of the box.
func (b *boxes) walk() []strided.Dim { return b.dims[:b.rank] }
