package bus

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

func on(dims []int, placements ...layout.Placement) layout.Layout {
	return layout.Layout{Mesh: layout.MeshOf(dims...), Placements: placements}
}

// vector is a pair of layouts between which the bus moves tensors of a shape.
type vector struct {
	from, to layout.Layout
	shape    []int64
}

func (v *vector) String() string { return fmt.Sprintf("%s to %s of %v", v.from, v.to, v.shape) }

// vectors are the pairs of layouts that Etha tests, and some more.
func vectors() (all []vector) {
	r, s0, s1, sum := layout.Replicate(), layout.Shard(0), layout.Shard(1), layout.Partial(layout.Sum)
	square := []int64{64, 64}
	all = []vector{
		{on([]int{1, 2, 2}, r, s0, s0), on([]int{4}, s0), square},
		{on([]int{2, 2}, r, s0), on([]int{4}, s0), square},
		{on([]int{1, 4}, r, r), on([]int{2, 2}, r, s0), square},
		{on([]int{4}, s1), on([]int{4}, s1), square},
		{on([]int{2}, s1), on([]int{3}, s1), square},
		{on([]int{2}, sum), on([]int{2}, r), square},
		{on([]int{2}, layout.Partial(layout.Avg)), on([]int{2}, s0), square},
		{on([]int{2, 2}, s0, sum), on([]int{4}, s0), square},
		{on([]int{2, 2}, sum, sum), on([]int{4}, r), square},
		{on([]int{2, 3}, sum, sum), on([]int{2}, r), square},
		{on([]int{2, 2}, layout.Partial(layout.Max), sum), on([]int{2}, s0), square},
		{on([]int{2, 2}, r, layout.Partial(layout.Min)), on([]int{2}, r), square},
		{on([]int{3}, layout.Partial(layout.Product)), on([]int{2}, s1), []int64{5, 7}},
		{on([]int{2}, s0), on([]int{7}, s0), []int64{5, 3}},
		{on([]int{7}, s0), on([]int{2}, s0), []int64{5, 3}},
		{on([]int{1}, s0), on([]int{1, 1}, r, s1), []int64{8, 4}},
		{on([]int{2}, r), on([]int{5}, r), []int64{5}},
		{on([]int{2}, r), on([]int{2}, r), nil},
		{on([]int{2}, sum), on([]int{2}, r), nil},
		{on([]int{2, 2}, layout.StridedShard(0, 2), s0), on([]int{2}, s0), square},
	}
	for _, m := range [][2][]int{
		{{4, 1, 1, 1}, {4, 1, 1, 1}}, {{2, 2, 1, 1}, {2, 1, 1, 2}}, {{2, 2, 1, 1}, {2, 1, 2, 1}}, {{2, 1, 2, 1}, {2, 1, 1, 2}},
		{{2, 1, 1, 2}, {1, 1, 2, 2}}, {{1, 2, 2, 1}, {1, 2, 1, 2}}, {{1, 2, 1, 2}, {1, 1, 2, 2}}, {{1, 1, 2, 2}, {2, 1, 1, 2}},
		{{4, 1, 1, 1}, {1, 1, 1, 4}}, {{1, 4, 1, 1}, {1, 1, 4, 1}}, {{1, 1, 4, 1}, {1, 1, 1, 4}},
	} {
		all = append(all, vector{on(m[0], r, r, s0, s1), on(m[1], r, layout.StridedShard(1, 2), r, s1), square})
	}
	return all
}

// model holds the elements of a tensor at all ranks of both sides, and what each target has to have in the end.
type model struct {
	from, to   [][]float32 // by rank; contiguous
	want       [][]float32
	fromShapes []tensor.Shape
	toShapes   []tensor.Shape
}

// makeModel fills the sources with seeded numbers. It knows nothing of routes: each element of the whole has a value at
// each rank that has it, and the values of partial dimensions are reduced element by element.
func makeModel(t testing.TB, v *vector, seed uint64) *model {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 9))
	shape, err := tensor.MakeShape(v.shape...)
	require.NoError(t, err)
	elems, _ := shape.Elems()
	// The value of each element for each combination of coordinates in partial dimensions.
	values := map[string][]float32{}
	key := func(i int) string {
		at := v.from.Mesh.Coordinates(i)
		for d, p := range v.from.Placements {
			if p.Kind != layout.Reducible {
				at[d] = 0
			}
		}
		return fmt.Sprint(at)
	}
	m := &model{}
	whole := make([]float32, elems)
	for i := range v.from.Mesh.Size() {
		k := key(i)
		if values[k] == nil {
			values[k] = make([]float32, elems)
			for e := range values[k] {
				values[k][e] = float32(rng.IntN(17) + 1)
			}
		}
		part, err := v.from.Part(shape, i)
		require.NoError(t, err)
		m.fromShapes = append(m.fromShapes, part.Local())
		m.from = append(m.from, take(&part, values[k]))
	}
	for e := range whole {
		whole[e] = reduceElement(v.from, func(at []int) float32 { return values[fmt.Sprint(at)][e] })
	}
	for i := range v.to.Mesh.Size() {
		part, err := v.to.Part(shape, i)
		require.NoError(t, err)
		m.toShapes = append(m.toShapes, part.Local())
		m.want = append(m.want, take(&part, whole))
		m.to = append(m.to, make([]float32, part.Elems()))
	}
	return m
}

// reduceElement reduces the values of one element, the outermost dimension first.
func reduceElement(l layout.Layout, value func(at []int) float32) float32 {
	at := make([]int, len(l.Placements))
	var level func(d int) float32
	level = func(d int) float32 {
		for ; d >= 0 && l.Placements[d].Kind != layout.Reducible; d-- {
		}
		if d < 0 {
			return value(at)
		}
		var all []float32
		for c := range l.Mesh.Dims[d] {
			at[d] = c
			all = append(all, level(d-1))
		}
		at[d] = 0
		out := all[0]
		for _, x := range all[1:] {
			switch l.Placements[d].Op {
			case layout.Max:
				out = max(out, x)
			case layout.Min:
				out = min(out, x)
			case layout.Product:
				out *= x
			default:
				out += x
			}
		}
		if l.Placements[d].Op == layout.Avg {
			out /= float32(len(all))
		}
		return out
	}
	return level(len(l.Placements) - 1)
}

// take copies what a part has of the whole.
func take(p *layout.Part, whole []float32) []float32 {
	shape, local := p.Shape(), p.Local()
	out := make([]float32, p.Elems())
	for e := range out {
		rest, index := int64(e), int64(0)
		at := make([]int64, local.Rank())
		for d := local.Rank() - 1; d >= 0; d-- {
			at[d] = rest % local.Dim(d)
			rest /= local.Dim(d)
		}
		for d := range at {
			for _, s := range p.Spans(d) {
				if s.Local <= at[d] && at[d] < s.Local+s.Stop-s.Start {
					index = index*shape.Dim(d) + s.Start + at[d] - s.Local
				}
			}
		}
		out[e] = whole[index]
	}
	return out
}

// offsets lists the places of the elements of a box in a contiguous part.
func offsets(s tensor.Shape, at, extent []int64) (all []int64) {
	all = []int64{0}
	for d := range s.Rank() {
		var next []int64
		for _, o := range all {
			for i := range extent[d] {
				next = append(next, o*s.Dim(d)+at[d]+i)
			}
		}
		all = next
	}
	return all
}

func TestRoutes(t *testing.T) {
	for _, v := range vectors() {
		t.Run(v.String(), func(t *testing.T) {
			m := makeModel(t, &v, 4)
			shape, err := wholeShape(v.from, m.fromShapes)
			require.NoError(t, err)
			require.Equal(t, tensor.ShapeOf(v.shape...), shape)
			shape, err = wholeShape(v.to, m.toShapes)
			require.NoError(t, err)
			routes, err := Redistribute(v.from, v.to, shape)
			require.NoError(t, err)
			written := map[[2]int64]bool{}
			for i, r := range routes {
				if i > 0 {
					require.LessOrEqual(t, routes[i-1].Source, r.Source, "ordered by source")
				}
				from := offsets(m.fromShapes[r.Source], r.Src[:], r.Extent[:])
				values := reduceBox(t, &v, m, int(r.Source), from)
				for _, to := range r.Targets {
					for k, o := range offsets(m.toShapes[to.Rank], to.Dst[:], r.Extent[:]) {
						require.False(t, written[[2]int64{int64(to.Rank), o}], "every element comes once")
						written[[2]int64{int64(to.Rank), o}] = true
						m.to[to.Rank][o] = values[k]
					}
				}
			}
			require.Equal(t, m.want, m.to)
		})
	}
}

// reduceBox follows the steps of a reduction.
func reduceBox(t testing.TB, v *vector, m *model, index int, at []int64) []float32 {
	r, ok := reductionOf(&v.from, index)
	members := []int{index}
	if ok {
		members = r.members
	}
	var list [][]float32
	for _, i := range members {
		var x []float32
		for _, o := range at {
			x = append(x, m.from[i][o])
		}
		list = append(list, x)
	}
	for _, s := range r.steps {
		n := len(list) / s.count
		for k := range n {
			for i := 1; i < s.count; i++ {
				for e, x := range list[k+i*n] {
					switch s.op {
					case layout.Max:
						list[k][e] = max(list[k][e], x)
					case layout.Min:
						list[k][e] = min(list[k][e], x)
					case layout.Product:
						list[k][e] *= x
					default:
						list[k][e] += x
					}
				}
			}
		}
		list = list[:n]
	}
	require.Len(t, list, 1)
	for e := range list[0] {
		if ok {
			list[0][e] /= float32(r.divisor)
		}
	}
	return list[0]
}

// A box that several targets need is one route.
func TestBroadcasts(t *testing.T) {
	routes, err := Redistribute(on([]int{2}, layout.Shard(0)), on([]int{2, 2}, layout.Replicate(), layout.Shard(0)), tensor.ShapeOf(4, 3))
	require.NoError(t, err)
	require.Len(t, routes, 2)
	for i, r := range routes {
		require.EqualValues(t, i, r.Source)
		require.Len(t, r.Targets, 2)
	}
	_, err = Redistribute(on([]int{2}, layout.Shard(0)), on([]int{2}, layout.Partial(layout.Sum)), tensor.ShapeOf(4, 3))
	require.ErrorContains(t, err, "a target cannot be partial")
}

// Of replicas each serves some targets.
func TestReplicasShareTheLoad(t *testing.T) {
	routes, err := Redistribute(on([]int{2, 2}, layout.Replicate(), layout.Shard(0)), on([]int{8}, layout.Shard(0)), tensor.ShapeOf(16))
	require.NoError(t, err)
	sources := map[stepvan.Rank]int{}
	for _, r := range routes {
		sources[r.Source] += len(r.Targets)
	}
	require.Equal(t, map[stepvan.Rank]int{0: 2, 1: 2, 2: 2, 3: 2}, sources)
}

func TestPartsThatMakeNoTensor(t *testing.T) {
	s := tensor.ShapeOf
	for want, x := range map[string]struct {
		l     layout.Layout
		parts []tensor.Shape
	}{
		"rank 0 has [1 4] of a tensor [3 4]":                        {on([]int{2}, layout.Shard(0)), []tensor.Shape{s(1, 4), s(2, 4)}},
		"rank 1 has [4 3] of a tensor [4 4]":                        {on([]int{2}, layout.Replicate()), []tensor.Shape{s(4, 4), s(4, 3)}},
		"rank 0 has [4] and rank 1 has [4 4]":                       {on([]int{2}, layout.Replicate()), []tensor.Shape{s(4), s(4, 4)}},
		"cuts a dimension that a tensor of shape [4] does not have": {on([]int{1}, layout.Shard(1)), []tensor.Shape{s(4)}},
		"uneven": {on([]int{2}, layout.StridedShard(0, 2)), []tensor.Shape{s(3), s(3)}},
	} {
		_, err := wholeShape(x.l, x.parts)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
}

func TestWireTypes(t *testing.T) {
	for _, x := range [][3]tensor.DType{
		{tensor.Float32, tensor.Float32, 0}, {tensor.Int8, tensor.Int8, 0}, {tensor.Float32, tensor.BFloat16, tensor.BFloat16},
		{tensor.BFloat16, tensor.Float32, tensor.BFloat16}, {tensor.BFloat16, tensor.Float16, tensor.BFloat16},
		{tensor.Float16, tensor.BFloat16, tensor.Float16}, {tensor.Float8E4M3FN, tensor.Float64, tensor.Float8E4M3FN},
	} {
		got, err := wireType(x[0], x[1])
		require.NoError(t, err)
		require.Equal(t, x[2], got)
	}
	_, err := wireType(tensor.Int32, tensor.Int64)
	require.ErrorContains(t, err, "int32 cannot become int64")
	avg, sum := on([]int{2}, layout.Partial(layout.Avg)), on([]int{2}, layout.Partial(layout.Sum))
	require.NoError(t, checkReduction(&avg, tensor.BFloat16))
	require.NoError(t, checkReduction(&sum, tensor.Int32))
	require.ErrorContains(t, checkReduction(&avg, tensor.Int32), "P(avg) of int32: there is no such reduction")
	require.ErrorIs(t, checkReduction(&sum, tensor.Bool), stepvan.ErrInvalid)
	require.ErrorIs(t, checkReduction(&sum, tensor.Complex64), stepvan.ErrInvalid)
}
