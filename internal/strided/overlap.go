package strided

import (
	"cmp"
	"slices"
)

// Overlaps reports whether two elements of a view are in one place. The view has at most [MaxRank] dimensions, and no
// negative stride. sure is false where the search was given up. Budget: 0 allocations.
func Overlaps(extents, strides []int64) (overlap, sure bool) {
	var dims [MaxRank]step
	rank, repeats := 0, false
	for i, n := range extents {
		switch {
		case n == 0:
			return false, true
		case n == 1:
		case strides[i] == 0:
			repeats = true
		default:
			dims[rank] = step{n, strides[i]}
			rank++
		}
	}
	if repeats {
		return true, true
	}
	slices.SortFunc(dims[:rank], func(a, b step) int { return cmp.Compare(b.stride, a.stride) })
	left := most
	for i := range rank {
		if left > 0 && returns(dims[i:rank], &left) {
			return true, true
		}
	}
	return false, left > 0
}

// returns reports whether steps of the first dimension lead back to where they began, at least one of them, with steps
// of the others in either direction. The search may take left steps.
func returns(dims []step, left *int) bool {
	s := search{left: *left}
	s.add(step{dims[0].extent - 1, dims[0].stride})
	back := -dims[0].stride // to where all steps of the others go back as far as they can
	for _, d := range dims[1:] {
		s.add(step{2*d.extent - 1, d.stride})
		back += (d.extent - 1) * d.stride
	}
	s.prepare()
	found := s.find(0, back, back)
	*left = s.left
	return found
}
