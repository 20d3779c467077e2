package strided

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func viewsOf(list []layout) (views []View) {
	for i := range list {
		views = append(views, list[i].view())
	}
	return views
}

// Against a list of all places: any views, and boxes of some tensors.
func TestFirstIntersection(t *testing.T) {
	found := map[bool]int{}
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 5))
		var list []layout
		shape, strides := tensorOf(r, 5)
		for range r.IntN(6) {
			l := anyLayout(r)
			if seed%2 == 0 {
				l = box(r, 4, shape, strides)
			}
			if r.IntN(2) == 0 {
				l.at += 10_000
			}
			list = append(list, l)
		}
		want := false
		for j := range list {
			for i := range j {
				want = want || list[i].intersects(&list[j])
			}
		}
		found[want]++
		i, j, got, sure := FirstIntersection(viewsOf(list))
		require.Equal(t, want, got, "%+v", list)
		require.True(t, sure)
		if got {
			require.Less(t, i, j)
			require.True(t, list[i].intersects(&list[j]), "%d and %d of %+v", i, j, list)
		}
	}
	require.Greater(t, min(found[true], found[false]), 500)
}

// parts cuts a tensor along each dimension into so many parts.
func parts(shape, strides, counts []int64) (list []layout) {
	each(counts, func(index []int64) {
		l := layout{size: 2, strides: strides}
		for i, n := range shape {
			lo, hi := n*index[i]/counts[i], n*(index[i]+1)/counts[i]
			l.at += lo * strides[i] * l.size
			l.extents = append(l.extents, hi-lo)
		}
		list = append(list, l)
	})
	return list
}

// partitions are tensors that were cut into some ten thousand parts.
var partitions = map[string][3][]int64{
	"columns":        {{1000, 80_000}, {80_000, 1}, {1, 10_000}},
	"rows":           {{80_000, 1000}, {1000, 1}, {10_000, 1}},
	"tiles":          {{1000, 1000}, {1000, 1}, {100, 100}},
	"middle":         {{30, 10_000, 50}, {500_000, 50, 1}, {1, 10_000, 1}},
	"cubes":          {{60, 60, 60}, {3600, 60, 1}, {22, 22, 22}},
	"of four":        {{30, 30, 30, 30}, {27_000, 900, 30, 1}, {10, 10, 10, 10}},
	"of a transpose": {{1000, 80_000}, {1, 1000}, {10_000 / 40, 40}},
}

// All parts of a tensor are apart. One element more, and two of them intersect.
func TestPartsOfATensorAreApart(t *testing.T) {
	for name, p := range partitions {
		list := parts(p[0], p[1], p[2])
		require.Greater(t, len(list), 9_000, name)
		rand.New(rand.NewPCG(1, 6)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		_, _, found, sure := FirstIntersection(viewsOf(list))
		require.False(t, found, name)
		require.True(t, sure, name)
		last := slices.IndexFunc(list, func(l layout) bool { return l.at == 0 })
		list[last].extents = slices.Clone(list[last].extents)
		for i, n := range p[2] {
			if n > 1 {
				list[last].extents[i]++
				break
			}
		}
		i, j, found, sure := FirstIntersection(viewsOf(list))
		require.True(t, found && sure, name)
		require.Contains(t, []int{i, j}, last, name)
	}
}

// The same slices of tensors that do not lie apart by a whole number of their rows.
func TestSlicesOfSeveralTensors(t *testing.T) {
	var list []layout
	for k := range int64(50) {
		for _, l := range parts([]int64{100, 301 + k}, []int64{301 + k, 1}, []int64{1, 100}) {
			l.at += k * 100_003
			list = append(list, l)
		}
	}
	_, _, found, _ := FirstIntersection(viewsOf(list))
	require.False(t, found)
	list[4321].at += 2
	i, j, found, sure := FirstIntersection(viewsOf(list))
	require.True(t, found && sure)
	require.Contains(t, []int{i, j}, 4321)
}

// A pair that nobody can compare is named when no other one intersects.
func TestFirstIntersectionThatNobodyFinds(t *testing.T) {
	a := layout{0, 1, []int64{1 << 16, 1 << 16, 1 << 16}, []int64{1<<40 + 15, 1<<40 + 37, 1<<40 + 7}}
	b := layout{3, 1, []int64{1 << 16, 1 << 16, 1 << 16}, []int64{1<<40 + 91, 1<<40 + 183, 1<<40 + 201}}
	c := layout{100, 1, []int64{5}, []int64{1}}
	i, j, found, sure := FirstIntersection(viewsOf([]layout{c, b, a}))
	require.True(t, found)
	require.False(t, sure)
	require.Equal(t, [2]int{1, 2}, [2]int{i, j})
	i, j, found, sure = FirstIntersection(viewsOf([]layout{c, b, a, c}))
	require.True(t, found && sure)
	require.Equal(t, [2]int{0, 3}, [2]int{i, j})
}

// Each list has some ten thousand views.
func BenchmarkFirstIntersection(b *testing.B) {
	for name, p := range partitions {
		b.Run(name, func(b *testing.B) {
			views := viewsOf(parts(p[0], p[1], p[2]))
			for b.Loop() {
				if _, _, found, _ := FirstIntersection(views); found {
					b.Fatal("parts of a tensor intersect")
				}
			}
		})
	}
}
