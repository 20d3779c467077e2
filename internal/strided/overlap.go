package strided

import (
	"cmp"
	"slices"
)

// most is how many steps the search for an overlap may take. Views of programs take none, or a few.
const most = 10_000

// Overlaps reports whether two elements of a view are in one place. The view has at most [MaxRank] dimensions, and no
// negative stride. sure is false where the search was given up. Budget: 0 allocations.
func Overlaps(extents, strides []int64) (overlap, sure bool) {
	var s search
	repeats := false
	for i, n := range extents {
		switch {
		case n == 0:
			return false, true
		case n == 1:
		case strides[i] == 0:
			repeats = true
		default:
			s.dims[s.rank] = Dim{Extent: n, To: strides[i]}
			s.rank++
		}
	}
	if repeats {
		return true, true
	}
	slices.SortFunc(s.dims[:s.rank], func(a, b Dim) int { return cmp.Compare(b.To, a.To) })
	nested := true
	for i := s.rank - 1; i >= 0; i-- {
		d := &s.dims[i]
		nested = nested && d.To > s.reach[i+1]
		s.reach[i] = s.reach[i+1] + (d.Extent-1)*d.To
	}
	if nested {
		return false, true
	}
	s.left = most
	overlap = s.find(0, 0, false)
	return overlap, s.left > 0
}

// search looks for two elements in one place: steps of the dimensions, not all 0, that add up to 0.
type search struct {
	dims  [MaxRank]Dim       // the longest strides first
	reach [MaxRank + 1]int64 // how far the dimensions from one on go together
	rank  int
	left  int // steps
}

// find looks for steps of the dimensions from i on that end at 0 from a place. moved: an earlier step was not 0.
func (s *search) find(i int, at int64, moved bool) bool {
	if i == s.rank {
		return moved && at == 0
	}
	d, rest := &s.dims[i], s.reach[i+1]
	lo, hi := max(1-d.Extent, ceil(-at-rest, d.To)), min(d.Extent-1, floor(rest-at, d.To))
	if !moved {
		lo = max(lo, 0) // the opposite steps lead to the same
	}
	for n := lo; n <= hi && s.left > 0; n++ {
		s.left--
		if s.find(i+1, at+n*d.To, moved || n != 0) {
			return true
		}
	}
	return false
}

func floor(a, b int64) int64 {
	n := a / b
	if a%b < 0 {
		n--
	}
	return n
}

func ceil(a, b int64) int64 { return -floor(-a, b) }
