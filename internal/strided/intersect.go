package strided

import (
	"cmp"
	"slices"
)

// View is where the elements of a view lie. It has no pointers. Make it with [NewView]; the zero value has no elements.
type View struct {
	at   int64 // of the first element
	run  int64 // bytes that follow one another there, and after each step
	rank int
	dims [MaxRank]step // the longest strides first
}

// NewView returns the view with its first element at an address, or at so many bytes of some memory. An element has
// size bytes. The view has at most [MaxRank] dimensions, with strides in elements and none of them negative,
// and ends within the address space. Budget: 0 allocations.
func NewView(at, size int64, extents, strides []int64) View {
	v := View{at: at, run: size}
	for i, n := range extents {
		switch {
		case n == 0:
			return View{}
		case n == 1 || strides[i] == 0: // they lead nowhere else
		default:
			v.dims[v.rank] = step{n, strides[i] * size}
			v.rank++
		}
	}
	slices.SortFunc(v.dims[:v.rank], func(a, b step) int { return cmp.Compare(b.stride, a.stride) })
	v.join()
	return v
}

// join makes the run as long as it can be, and joins loops.
func (v *View) join() {
	n := v.rank
	for n > 0 && v.dims[n-1].stride <= v.run {
		n--
		v.run += (v.dims[n].extent - 1) * v.dims[n].stride
	}
	list := v.dims[:0]
	for _, d := range v.dims[:n] {
		list = within(list, d)
	}
	v.rank = len(list)
	clear(v.dims[v.rank:])
}

// end is where the last element ends.
func (v *View) end() int64 { return v.at + v.reach() + v.run }

// reach is how far it is from the first element to the last.
func (v *View) reach() (n int64) {
	for _, d := range v.dims[:v.rank] {
		n += (d.extent - 1) * d.stride
	}
	return n
}

// Intersect reports whether two views of the same memory have a byte in common. sure is false where the search was
// given up. It never is for boxes of one tensor, whatever their dimensions. Budget: 0 allocations.
func Intersect(a, b *View) (intersect, sure bool) {
	if a.run == 0 || b.run == 0 || a.end() <= b.at || b.end() <= a.at {
		return false, true
	}
	s := search{left: most}
	// Steps of a go forward from its first element, and steps of b go back from its last one.
	i, k := 0, 0
	for i < a.rank || k < b.rank {
		if k == b.rank || i < a.rank && a.dims[i].stride >= b.dims[k].stride {
			s.add(a.dims[i])
			i++
		} else {
			s.add(b.dims[k])
			k++
		}
	}
	s.prepare()
	apart := b.at + b.reach() - a.at
	intersect = s.find(0, apart-a.run+1, apart+b.run-1)
	return intersect, intersect || s.left > 0
}
