package layout

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// The reference knows no spans. It has one list of indices of the whole for each dimension, and it copies elements one
// by one.

// chunks is torch.chunk of a list, with empty chunks behind.
func chunks(list []int64, count int) [][]int64 {
	all := make([][]int64, count)
	size := (len(list) + count - 1) / count
	for i := range all {
		all[i] = list[min(i*size, len(list)):min((i+1)*size, len(list))]
	}
	return all
}

// strided is what rank i of count has of a list by StridedShard. The list is chunked in factor, and each chunk in
// count. The rank has piece i of each.
func strided(list []int64, factor, count, i int) []int64 {
	out := []int64{}
	for _, chunk := range chunks(list, factor) {
		out = append(out, chunks(chunk, count)[i]...)
	}
	return out
}

func indices(n int64) []int64 {
	list := make([]int64, n)
	for i := range list {
		list[i] = int64(i)
	}
	return list
}

// naive is what the rank at index has, by dimension.
func naive(l Layout, shape []int64, index int) [][]int64 {
	c := l.Mesh.Coordinates(index)
	lists := make([][]int64, len(shape))
	for d, n := range shape {
		lists[d] = indices(n)
	}
	for i, p := range l.Placements {
		switch p.Kind {
		case Sharded:
			lists[p.Dim] = chunks(lists[p.Dim], l.Mesh.Dims[i])[c[i]]
		case StridedSharded:
			lists[p.Dim] = strided(lists[p.Dim], p.Factor, l.Mesh.Dims[i], c[i])
		}
	}
	return lists
}

// uneven reports whether StridedShard would give some rank another piece than others.
func uneven(l Layout, shape []int64) bool {
	for index := range l.Mesh.Size() {
		for i, p := range l.Placements {
			before := Layout{Mesh{Dims: l.Mesh.Dims}, append(append([]Placement{}, l.Placements[:i]...), make([]Placement, len(l.Placements)-i)...)}
			if p.Kind == StridedSharded && len(naive(before, shape, index)[p.Dim])%(p.Factor*l.Mesh.Dims[i]) != 0 {
				return true
			}
		}
	}
	return false
}

// indicesOf are the indices of the whole that a part has in dimension d, in the order of the part.
func indicesOf(p *Part, d int) []int64 {
	list := make([]int64, p.Local().Dim(d))
	for _, s := range p.Spans(d) {
		for i := range s.size() {
			list[s.Local+i] = s.Start + i
		}
	}
	return list
}

// array is the memory of a part: each element has the number of its place in the whole.
type array struct {
	dims   []int64
	values []int64
}

// filled is the memory of a rank that has these indices of each dimension.
func filled(lists [][]int64, shape []int64) array {
	a := array{values: []int64{0}}
	for d, list := range lists {
		a.dims = append(a.dims, int64(len(list)))
		next := []int64{}
		for _, v := range a.values {
			for _, i := range list {
				next = append(next, v*shape[d]+i)
			}
		}
		a.values = next
	}
	return a
}

func empty(lists [][]int64) array {
	a := array{}
	n := int64(1)
	for _, list := range lists {
		a.dims = append(a.dims, int64(len(list)))
		n *= int64(len(list))
	}
	a.values = make([]int64, n)
	for i := range a.values {
		a.values[i] = -1
	}
	return a
}

func (a *array) offset(at []int64) int64 {
	n := int64(0)
	for d, i := range at {
		n = n*a.dims[d] + i
	}
	return n
}

// write copies the elements of a move one by one. It refuses an element that has been written.
func write(t *testing.T, v *Move, src, dst *array) {
	t.Helper()
	require.Len(t, src.dims, v.Rank)
	elems := int64(1)
	for d := range v.Rank {
		require.Positive(t, v.Extent[d])
		require.LessOrEqual(t, v.Src[d]+v.Extent[d], src.dims[d])
		require.LessOrEqual(t, v.Dst[d]+v.Extent[d], dst.dims[d])
		elems *= v.Extent[d]
	}
	for k := range elems {
		from, to := make([]int64, v.Rank), make([]int64, v.Rank)
		rest := k
		for d := v.Rank - 1; d >= 0; d-- {
			from[d], to[d] = v.Src[d]+rest%v.Extent[d], v.Dst[d]+rest%v.Extent[d]
			rest /= v.Extent[d]
		}
		place := &dst.values[dst.offset(to)]
		if *place != -1 {
			t.Fatalf("element %v of the destination is written twice", to)
		}
		*place = src.values[src.offset(from)]
	}
}

// maximal refuses two moves of one source that could be one, and moves that are not in the order of the destination.
func maximal(t *testing.T, m *Moves) {
	t.Helper()
	for i := range m.Len() {
		a := m.At(i)
		if i > 0 {
			before := m.At(i - 1)
			require.Negative(t, compare(before.Dst[:], a.Dst[:]), "moves %d and %d are out of order", i-1, i)
		}
		for k := range m.Len() {
			b := m.At(k)
			if i == k || a.Source != b.Source {
				continue
			}
			differ, dim := 0, 0
			for d := range a.Rank {
				if a.Src[d] != b.Src[d] || a.Dst[d] != b.Dst[d] || a.Extent[d] != b.Extent[d] {
					differ, dim = differ+1, d
				}
			}
			touch := differ == 1 && a.Src[dim]+a.Extent[dim] == b.Src[dim] && a.Dst[dim]+a.Extent[dim] == b.Dst[dim]
			require.False(t, touch, "moves %d and %d touch: %v, %v", i, k, a, b)
		}
	}
}

func compare(a, b []int64) int {
	for i := range a {
		if a[i] != b[i] {
			return int(min(max(a[i]-b[i], -1), 1))
		}
	}
	return 0
}

// shapeOf is a shape from a slice.
func shapeOf(t testing.TB, dims []int64) tensor.Shape {
	t.Helper()
	s, err := tensor.MakeShape(dims...)
	require.NoError(t, err)
	return s
}

// anyShape has 1 to 4 small dimensions. Some of them are multiples of many numbers, some are odd, some are empty.
func anyShape(r *rand.Rand) []int64 {
	dims := make([]int64, 1+r.IntN(4))
	for d := range dims {
		switch r.IntN(8) {
		case 0, 1, 2:
			dims[d] = int64(1 + r.IntN(7))
		case 3:
			dims[d] = int64(r.IntN(3))
		default:
			dims[d] = []int64{4, 6, 8, 12}[r.IntN(4)]
		}
	}
	return dims
}

// anyLayout has 1 to 4 dimensions, some ranks in another order, and partial values only where they are allowed.
func anyLayout(r *rand.Rand, dims int, partial bool, first int) Layout {
	l := Layout{Mesh: Mesh{Dims: make([]int, 1+r.IntN(4))}, Placements: nil}
	for i := range l.Mesh.Dims {
		l.Mesh.Dims[i] = 1 + r.IntN(3)
	}
	for range l.Mesh.Dims {
		kinds := 5
		if partial {
			kinds = 6
		}
		d := r.IntN(dims)
		switch r.IntN(kinds) {
		case 0, 1:
			l.Placements = append(l.Placements, Shard(d))
		case 2:
			l.Placements = append(l.Placements, StridedShard(d, 1+r.IntN(3)))
		case 3, 4:
			l.Placements = append(l.Placements, Replicate())
		case 5:
			l.Placements = append(l.Placements, Partial(Op(r.IntN(int(opEnd)))))
		}
	}
	if first > 0 || r.IntN(2) == 0 {
		for _, i := range r.Perm(l.Mesh.Size()) {
			l.Mesh.Ranks = append(l.Mesh.Ranks, stepvan.Rank(first+i))
		}
	}
	return l
}

// anyPart is a part in any order: each dimension has some spans of the whole, shuffled.
func anyPart(t *testing.T, r *rand.Rand, shape []int64) Part {
	t.Helper()
	lists := make([][]Span, len(shape))
	for d, n := range shape {
		var list []Span
		for at := int64(0); at < n; {
			stop := min(n, at+1+r.Int64N(4))
			if r.IntN(4) > 0 {
				list = append(list, Span{Start: at, Stop: stop})
			}
			at = stop
		}
		if r.IntN(2) == 0 {
			r.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
		}
		local := int64(0)
		for i := range list {
			list[i].Local = local
			local += list[i].size()
		}
		lists[d] = list
	}
	p, err := NewPart(shapeOf(t, shape), lists...)
	require.NoError(t, err)
	return p
}

func (a *array) String() string { return fmt.Sprint(a.dims, a.values) }
