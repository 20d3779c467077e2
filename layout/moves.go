package layout

import (
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Box is a copy of a block of elements from one part to another. Only the first entries count, as many as the tensor
// has dimensions. The offsets say where the first element lies in each part. They count elements of each dimension.
type Box struct {
	Src, Dst, Extent [tensor.MaxRank]int64
}

// Move is a box that a rank sends.
type Move struct {
	Source stepvan.Rank
	Rank   int // the number of dimensions
	Box
}

// Moves is a list of moves. It is a table of numbers without pointers: a move of a matrix takes 64 bytes, and one in
// eight dimensions 208. The zero value is empty. One goroutine at a time may use it.
//
// The functions that append keep working memory in it. So a Moves that is reset and used again costs no allocation.
// Keep what [Moves.Clone] returns.
type Moves struct {
	heads []head
	boxes []int64 // source offsets, destination offsets and extents of each move
	work  scratch
}

// head is one entry of the table.
type head struct {
	box    int // where its numbers begin
	source int32
	dims   int32
}

// scratch is working memory, by dimension.
type scratch struct {
	segments []segment
	first    [tensor.MaxRank + 1]int
	at       [tensor.MaxRank]int
}

// Len is the number of moves.
func (m *Moves) Len() int { return len(m.heads) }

// At is move i.
func (m *Moves) At(i int) (v Move) {
	h := m.heads[i]
	v.Source, v.Rank = stepvan.Rank(h.source), int(h.dims)
	numbers := m.boxes[h.box : h.box+3*int(h.dims)]
	copy(v.Src[:], numbers[:h.dims])
	copy(v.Dst[:], numbers[h.dims:2*h.dims])
	copy(v.Extent[:], numbers[2*h.dims:])
	return v
}

// Reset empties the list and keeps its memory.
func (m *Moves) Reset() { m.heads, m.boxes = m.heads[:0], m.boxes[:0] }

// Clone is a copy that has no memory to spare.
func (m *Moves) Clone() Moves {
	return Moves{heads: slices.Clip(slices.Clone(m.heads)), boxes: slices.Clip(slices.Clone(m.boxes))}
}

// Elems is the number of elements that all moves have together.
func (m *Moves) Elems() (n int64) {
	for _, h := range m.heads {
		one := int64(1)
		for _, extent := range m.boxes[h.box+2*int(h.dims) : h.box+3*int(h.dims)] {
			one *= extent
		}
		n += one
	}
	return n
}

// maxMoves bounds the moves of a destination. It has a move for each combination of the spans of all dimensions, so a
// description of a few bytes could ask for more than any memory holds.
const maxMoves = 1 << 20

// product appends one move for each combination of the segments of all dimensions, in the order of the destination.
// from says which rank has the part that the segments name.
func (m *Moves) product(lists *[tensor.MaxRank][]segment, dims int, from Sources) error {
	for d := range dims {
		if len(lists[d]) == 0 {
			return nil
		}
	}
	count := 1
	for d := range dims {
		if count *= len(lists[d]); count > maxMoves {
			return errs.Invalid("layout: too many moves between two parts (want at most %d): divide the tensor in fewer dimensions, "+
				"or in fewer spans", maxMoves)
		}
	}
	at := m.work.at[:dims]
	clear(at)
	for {
		base := len(m.boxes)
		m.boxes = slices.Grow(m.boxes, 3*dims)[:base+3*dims]
		box, cell := m.boxes[base:], 0
		for d, i := range at {
			s := &lists[d][i]
			box[d], box[dims+d], box[2*dims+d] = s.src, s.dst, s.n
			cell += int(s.cell)
		}
		m.heads = append(m.heads, head{base, int32(from.rank(cell)), int32(dims)})
		d := dims - 1
		for ; d >= 0; d-- {
			if at[d]++; at[d] < len(lists[d]) {
				break
			}
			at[d] = 0
		}
		if d < 0 {
			return nil
		}
	}
}

// lists are the segments of the working memory by dimension.
func (w *scratch) lists(dims int) (all [tensor.MaxRank][]segment) {
	for d := range dims {
		all[d] = w.segments[w.first[d]:w.first[d+1]]
	}
	return all
}

// Overlap appends the boxes of the elements that two parts of a tensor share, in the order of the destination. Boxes
// that touch on both sides are one. The source of the moves is rank.
func (m *Moves) Overlap(src, dst *Part, rank stepvan.Rank) error {
	if err := sameShape(src.shape, dst.shape); err != nil {
		return err
	}
	if err := checkRank("the sources", rank); err != nil {
		return err
	}
	dims := dst.shape.Rank()
	m.work.segments = m.work.segments[:0]
	for d := range dims {
		m.work.segments = overlap(m.work.segments, src.Spans(d), dst.Spans(d))
		m.work.first[d+1] = len(m.work.segments)
	}
	lists := m.work.lists(dims)
	return m.product(&lists, dims, Sources{Base: int(rank)})
}
