package strided

import (
	"cmp"
	"slices"
	"sort"
)

// FirstIntersection looks for two views of the same memory that have a byte in common. It returns their numbers in the
// list, the smaller one first. With found and not sure, the search was given up for these two, and no others have one.
//
// Its time grows as n log n, and with the number of pairs that it compares. It compares two views where their
// addresses alone do not show that they are apart, either whole or within the steps of one dimension. So it compares
// few pairs of the parts of a tensor.
func FirstIntersection(views []View) (i, j int, found, sure bool) {
	order := make([]int, 0, len(views))
	for k := range views {
		if views[k].run > 0 {
			order = append(order, k)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(views[a].at, views[b].at) })
	f := firstSearch{views: views, sure: true}
	for len(order) > 0 {
		n, end := 1, views[order[0]].end()
		for ; n < len(order) && views[order[n]].at < end; n++ {
			end = max(end, views[order[n]].end())
		}
		if f.compare(order[:n]) {
			break
		}
		order = order[n:]
	}
	return min(f.i, f.j), max(f.i, f.j), f.found, f.sure
}

// firstSearch is the state of FirstIntersection.
type firstSearch struct {
	views []View
	spans []span // of compare
	i, j  int
	found bool
	sure  bool
}

// span is memory of a view, from its first byte to its last, or within a step.
type span struct {
	from, to int64
	view     int
}

// compare looks for an intersection among views that lie between one another, and reports whether it is sure of one. It
// compares pairs whose spans overlap, in the address space or within the steps of a dimension, whichever are fewer.
func (f *firstSearch) compare(group []int) bool {
	if len(group) == 1 {
		return false
	}
	fewest := f.fold(group, 0)
	if fewest > len(group) {
		best := int64(0)
		for _, stride := range f.strides(group) {
			if n := f.fold(group, stride); n < fewest {
				best, fewest = stride, n
			}
		}
		f.fold(group, best)
	}
	for k, s := range f.spans {
		for _, other := range f.spans[k+1:] {
			if other.from >= s.to {
				break
			}
			if f.intersect(s.view, other.view) {
				return true
			}
		}
	}
	return false
}

// mostStrides is how many strides compare tries. Views of a tensor have as many as it has dimensions.
const mostStrides = 16

// strides lists the strides of views.
func (f *firstSearch) strides(group []int) (list []int64) {
	for _, k := range group {
		v := &f.views[k]
		for _, d := range v.dims[:v.rank] {
			if !slices.Contains(list, d.stride) {
				list = append(list, d.stride)
			}
		}
		if len(list) >= mostStrides {
			break
		}
	}
	return list
}

// intersect compares two views, and reports whether it is sure that they intersect.
func (f *firstSearch) intersect(i, j int) bool {
	intersect, sure := Intersect(&f.views[i], &f.views[j])
	if intersect || !sure && !f.found {
		f.i, f.j, f.found, f.sure = i, j, true, intersect
	}
	return intersect
}

// fold sorts the spans of views within steps of so many bytes, or whole with 0. Elements in one place lie in one place
// within a step, too. It returns how many pairs overlap.
func (f *firstSearch) fold(group []int, stride int64) (pairs int) {
	f.spans = f.spans[:0]
	for _, k := range group {
		v := &f.views[k]
		if stride == 0 {
			f.spans = append(f.spans, span{v.at, v.end(), k})
			continue
		}
		at := ((v.at % stride) + stride) % stride
		n := v.run
		for _, d := range v.dims[:v.rank] {
			if d.stride%stride != 0 {
				n += (d.extent - 1) * d.stride
			}
		}
		if n >= stride {
			at, n = 0, stride
		}
		f.spans = append(f.spans, span{at, at + n, k})
		if at+n > stride {
			f.spans = append(f.spans, span{at - stride, at + n - stride, k})
		}
	}
	slices.SortFunc(f.spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for k, s := range f.spans {
		pairs += sort.Search(len(f.spans)-k-1, func(n int) bool { return f.spans[k+1+n].from >= s.to })
	}
	return pairs
}
