package layout

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

func on(dims []int, placements ...Placement) Layout { return Layout{MeshOf(dims...), placements} }

// TestVectorsOfTheBus has the pairs of layouts that the spec of the tensor bus names. Field sources has the ranks that
// each target reads from.
func TestVectorsOfTheBus(t *testing.T) {
	r, s0, s1, sum := Replicate(), Shard(0), Shard(1), Partial(Sum)
	square := []int64{64, 64}
	for _, x := range []struct {
		from, to Layout
		shape    []int64
		sources  [][]stepvan.Rank
	}{
		{on([]int{1, 2, 2}, r, s0, s0), on([]int{4}, s0), square, [][]stepvan.Rank{{0}, {1}, {2}, {3}}},
		{on([]int{2, 2}, r, s0), on([]int{2, 2}, r, s0), square, [][]stepvan.Rank{{0}, {1}, {2}, {3}}},
		{on([]int{1, 4}, r, r), on([]int{2, 2}, r, s0), square, [][]stepvan.Rank{{0}, {1}, {2}, {3}}},
		{on([]int{4}, s1), on([]int{4}, s1), square, [][]stepvan.Rank{{0}, {1}, {2}, {3}}},
		{on([]int{4}, s1), on([]int{2}, s1), square, [][]stepvan.Rank{{0, 1}, {2, 3}}},
		{on([]int{2}, s1), on([]int{4}, s1), square, [][]stepvan.Rank{{0}, {0}, {1}, {1}}},
		// Each member of a partial source reduces and sends a share of the elements.
		{on([]int{2}, sum), on([]int{2}, r), square, [][]stepvan.Rank{{0, 1}, {0, 1}}},
		{on([]int{2}, Partial(Avg)), on([]int{2}, s0), square, [][]stepvan.Rank{{0}, {1}}},
		{on([]int{2, 2}, s0, sum), on([]int{4}, s0), square, [][]stepvan.Rank{{0}, {1}, {2}, {3}}},
		{on([]int{2, 2}, sum, sum), on([]int{4}, r), square, [][]stepvan.Rank{{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}}},
		{on([]int{2, 3}, sum, sum), on([]int{2}, r), square, [][]stepvan.Rank{{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}}},
		{on([]int{2, 2}, r, sum), on([]int{2}, r), square, [][]stepvan.Rank{{0, 1}, {0, 1}}},
		{on([]int{2, 2}, sum, r), on([]int{2}, r), square, [][]stepvan.Rank{{0, 2}, {1, 3}}},
		// Without payloads: rank i to rank i, whole tensors.
		{on([]int{3}, r), on([]int{3}, r), []int64{5}, [][]stepvan.Rank{{0}, {1}, {2}}},
		// Targets beyond the number of sources begin again with the first.
		{on([]int{2}, r), on([]int{5}, r), []int64{5}, [][]stepvan.Rank{{0}, {1}, {0}, {1}, {0}}},
		// 5 rows over 2 and over 7 ranks.
		{on([]int{2}, s0), on([]int{7}, s0), []int64{5, 3}, [][]stepvan.Rank{{0}, {0}, {0}, {1}, {1}, nil, nil}},
		{on([]int{7}, s0), on([]int{2}, s0), []int64{5, 3}, [][]stepvan.Rank{{0, 1, 2}, {3, 4}}},
		{on([]int{1}, s0), on([]int{1, 1}, r, s1), []int64{8, 4}, [][]stepvan.Rank{{0}}},
		{on(nil), on(nil), []int64{8, 4}, [][]stepvan.Rank{{0}}},
		{on([]int{2}, r), on([]int{2}, r), nil, [][]stepvan.Rank{{0}, {1}}}, // scalars
		{on([]int{2}, sum), on([]int{2}, r), nil, [][]stepvan.Rank{{0}, {0}}},
	} {
		t.Run(fmt.Sprintf("%s to %s of %v", x.from, x.to, x.shape), func(t *testing.T) {
			var got [][]stepvan.Rank
			for _, m := range redistribute(t, x.from, x.to, x.shape) {
				var ranks []stepvan.Rank
				for i := range m.Len() {
					ranks = append(ranks, m.At(i).Source)
				}
				slices.Sort(ranks)
				got = append(got, slices.Compact(ranks))
			}
			require.Len(t, got, len(x.sources))
			for i := range got {
				require.ElementsMatch(t, x.sources[i], got[i])
			}
		})
	}
}

// TestVectorsOfMeshes has the meshes over which the spec moves [R, R, S0, S1] to [R, SS(1, 2), R, S1].
func TestVectorsOfMeshes(t *testing.T) {
	for _, x := range [][2][]int{
		{{4, 1, 1, 1}, {4, 1, 1, 1}}, {{2, 2, 1, 1}, {2, 1, 1, 2}}, {{2, 2, 1, 1}, {2, 1, 2, 1}}, {{2, 1, 2, 1}, {2, 1, 1, 2}},
		{{2, 1, 1, 2}, {1, 1, 2, 2}}, {{1, 2, 2, 1}, {1, 2, 1, 2}}, {{1, 2, 1, 2}, {1, 1, 2, 2}}, {{1, 1, 2, 2}, {2, 1, 1, 2}},
		{{4, 1, 1, 1}, {1, 1, 1, 4}}, {{1, 4, 1, 1}, {1, 1, 4, 1}}, {{1, 1, 4, 1}, {1, 1, 1, 4}},
	} {
		from := on(x[0], Replicate(), Replicate(), Shard(0), Shard(1))
		to := on(x[1], Replicate(), StridedShard(1, 2), Replicate(), Shard(1))
		redistribute(t, from, to, []int64{64, 64})
	}
}

// TestOrderOfShards has the parts of two placements that cut the same dimension.
func TestOrderOfShards(t *testing.T) {
	rows := func(l Layout) (all [][2]int64) {
		for i := range l.Mesh.Size() {
			p, err := l.Part(tensor.ShapeOf(8, 8), i)
			require.NoError(t, err)
			require.Len(t, p.Spans(0), 1)
			all = append(all, [2]int64{p.Spans(0)[0].Start, p.Spans(0)[0].Stop})
		}
		return all
	}
	require.Equal(t, [][2]int64{{0, 2}, {2, 4}, {4, 6}, {6, 8}}, rows(on([]int{2, 2}, Shard(0), Shard(0))), "the outer first")
	require.Equal(t, [][2]int64{{0, 2}, {4, 6}, {2, 4}, {6, 8}}, rows(on([]int{2, 2}, StridedShard(0, 2), Shard(0))), "FSDP2 over tensor parallelism")
	p, err := on([]int{2}, StridedShard(0, 4)).Part(tensor.ShapeOf(16), 1)
	require.NoError(t, err)
	require.Equal(t, []Span{{2, 4, 0}, {6, 8, 2}, {10, 12, 4}, {14, 16, 6}}, p.Spans(0))
	require.Equal(t, tensor.ShapeOf(8), p.Local())
	require.Equal(t, tensor.ShapeOf(16), p.Shape())
}

// TestRoutes groups boxes by source: to one target, to several, and to the source itself.
func TestRoutes(t *testing.T) {
	from := Layout{Mesh{[]int{2}, []stepvan.Rank{5, 4}}, []Placement{Shard(0)}}
	to := Layout{Mesh{[]int{2, 2}, []stepvan.Rank{4, 5, 6, 7}}, []Placement{Replicate(), Shard(0)}}
	plan, err := Redistribute(from, to, tensor.ShapeOf(4, 3))
	require.NoError(t, err)
	var all []Receiver
	for i := range 4 {
		m := new(Moves)
		require.NoError(t, plan.Assign(i, from.Sources(i), m))
		all = append(all, Receiver{to.Mesh.Rank(i), m})
	}
	routes, err := Routes(all)
	require.NoError(t, err)
	box := [tensor.MaxRank]int64{2, 3}
	require.Equal(t, []Route{
		{Source: 4, Rank: 2, Extent: box, Targets: []Landing{{Rank: 5}, {Rank: 7}}},
		{Source: 5, Rank: 2, Extent: box, Targets: []Landing{{Rank: 4}, {Rank: 6}}},
	}, routes)

	local, err := Routes([]Receiver{{4, all[1].Moves}})
	require.NoError(t, err)
	require.Equal(t, []Landing{{Rank: 4}}, local[0].Targets)
	require.Equal(t, local[0].Source, local[0].Targets[0].Rank)
	// Boxes that begin at the same place and end at different ones are different routes.
	half := on([]int{2}, Shard(1))
	plan, err = Redistribute(from, half, tensor.ShapeOf(4, 3))
	require.NoError(t, err)
	m := new(Moves)
	require.NoError(t, plan.Assign(0, from.Sources(0), m))
	routes, err = Routes([]Receiver{all[1], {8, m}, all[3]})
	require.NoError(t, err)
	require.Len(t, routes, 3)
	require.Equal(t, []Landing{{Rank: 8, Dst: [tensor.MaxRank]int64{2}}}, routes[0].Targets)
	require.Equal(t, []Landing{{Rank: 5}, {Rank: 7}}, routes[1].Targets)
	require.Equal(t, []Landing{{Rank: 8}}, routes[2].Targets)

	none, err := Routes([]Receiver{{4, new(Moves)}})
	require.NoError(t, err)
	require.Empty(t, none)

	_, err = Routes([]Receiver{{-1, all[1].Moves}})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	line := redistribute(t, on([]int{1}, Replicate()), on([]int{1}, Replicate()), []int64{2})
	_, err = Routes([]Receiver{all[0], {9, line[0]}})
	require.ErrorContains(t, err, "different tensors (got 1 and 2 dimensions)")
}

// TestMembersOfReductions has a mesh with two partial dimensions around one that is not.
func TestMembersOfReductions(t *testing.T) {
	l := on([]int{2, 2, 3}, Partial(Max), Shard(0), Partial(Sum))
	require.Equal(t, Reduction{[]int{3, 4, 5, 9, 10, 11}, []int{2, 3}, []Op{Max, Sum}}, l.Reduction(10))
	require.Zero(t, on([]int{2}, Shard(0)).Reduction(1))
}

// TestLayoutsThatAreRefused has an error for each fault, which says what is wrong and what to do.
func TestLayoutsThatAreRefused(t *testing.T) {
	many := make([]int, 9)
	for i := range many {
		many[i] = 1
	}
	for _, x := range []struct {
		l     Layout
		shape []int64
		want  string
	}{
		{on([]int{2}), []int64{4}, "differ in number (got [] for mesh [2], want 1)"},
		{on(many, make([]Placement, 9)...), []int64{4}, "too many dimensions (got 9"},
		{on([]int{0}, Shard(0)), []int64{4}, "dimension 0 of mesh [0] is out of range"},
		{on([]int{1 << 10, 1 << 10}, Shard(0), Shard(0)), []int64{4}, "too large"},
		{on([]int{2}, Shard(1)), []int64{4}, "S(1) cuts a dimension that a tensor of shape [4] does not have"},
		{on([]int{2}, Shard(-1)), []int64{4}, "dimension of S(-1) is out of range (got -1, want 0 to 7): count from the front"},
		{on([]int{2}, StridedShard(0, 0)), []int64{4}, "factor of SS(0, 0) is out of range"},
		{on([]int{2}, StridedShard(0, 4)), []int64{4}, "uneven (got 4 elements, want a multiple of 4 x 2): pad the dimension or use Shard, in layout (2)[SS(0, 4)] of a tensor of shape [4]"},
		{on([]int{2, 2}, Shard(0), StridedShard(0, 1)), []int64{7}, "uneven (got 3 elements"},
		{on([]int{2}, Partial(9)), []int64{4}, "unknown reduction 9"},
		{on([]int{2}, Placement{Kind: 7}), []int64{4}, "unknown kind of placement 7"},
		{on([]int{1 << 5, 2}, StridedShard(0, 1<<15), Shard(0)), []int64{1 << 30}, "cut too often"},
		{on([]int{2}, Shard(0)), []int64{1<<62 + 1}, "too long"},
		{Layout{Mesh{[]int{2}, []stepvan.Rank{3}}, []Placement{Shard(0)}}, []int64{4}, "got 1 ranks, want 2"},
		{Layout{Mesh{[]int{2}, []stepvan.Rank{3, 3}}, []Placement{Shard(0)}}, []int64{4}, "names rank 3 twice"},
		{Layout{Mesh{[]int{2}, []stepvan.Rank{3, -1}}, []Placement{Shard(0)}}, []int64{4}, "out of range (got -1"},
	} {
		_, err := x.l.Divide(shapeOf(t, x.shape))
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, x.want)
		_, err = x.l.Part(shapeOf(t, x.shape), 0)
		require.ErrorContains(t, err, x.want)
	}
	good := on([]int{2}, Shard(0))
	_, err := good.Part(tensor.ShapeOf(-1), 0)
	require.ErrorContains(t, err, "the shape is invalid")
	_, err = good.Part(tensor.ShapeOf(4), 2)
	require.ErrorContains(t, err, "index is not one of mesh [2] (got 2, want 0 to 1)")
	partial := on([]int{2, 2}, Shard(0), Partial(Avg))
	_, err = Redistribute(good, partial, tensor.ShapeOf(4))
	require.ErrorContains(t, err, "a target cannot be partial (got P(avg) at dimension 1 of mesh [2 2]): use Replicate or Shard there")
	_, err = Redistribute(on([]int{2}), good, tensor.ShapeOf(4))
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, err = Redistribute(good, on([]int{2}), tensor.ShapeOf(4))
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}

func TestPlansThatAreRefused(t *testing.T) {
	l := on([]int{2}, Shard(0))
	a, err := l.Divide(tensor.ShapeOf(4))
	require.NoError(t, err)
	b, err := l.Divide(tensor.ShapeOf(6))
	require.NoError(t, err)
	_, err = NewPlanner(a, b)
	require.ErrorContains(t, err, "size mismatch (got [4] at the source, [6] at the destination)")
	p, err := NewPlanner(a, a)
	require.NoError(t, err)
	require.Equal(t, 2, a.Parts())
	require.Equal(t, tensor.ShapeOf(4), a.Shape())
	whole, err := Whole(tensor.ShapeOf(4))
	require.NoError(t, err)
	other, err := Whole(tensor.ShapeOf(6))
	require.NoError(t, err)
	holders, err := NewHolders([]Holder{{3, &whole}})
	require.NoError(t, err)
	var m Moves
	for want, err := range map[string]error{
		"no destination has this number (got 2, want 0 to 1)": p.Assign(2, Sources{}, &m),
		"base of the sources is out of range":                 p.Assign(0, Sources{Base: -1}, &m),
		"no rank has part 1 (got 1 ranks, want 2)":            p.Assign(0, Sources{Ranks: []stepvan.Rank{7}}, &m),
		"size mismatch (got [4] at the source":                a.Assign(&other, Sources{}, &m),
		"no rank has part 0 (got 0 ranks, want 2)":            a.Assign(&whole, Sources{Ranks: []stepvan.Rank{}}, &m),
		"size mismatch (got [4] at the source, [6]":           m.Overlap(&whole, &other, 0),
		"a rank of the sources is out of range":               m.Overlap(&whole, &whole, -1),
		"number of the target is negative":                    holders.Assign(&whole, 1, -1, &m),
		"size mismatch (got [4] at the source, [6] at":        holders.Assign(&other, 1, 1, &m),
	} {
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, want)
		require.Zero(t, m.Len())
	}
	_, err = NewHolders(nil)
	require.ErrorContains(t, err, "no rank has a part")
	_, err = NewHolders([]Holder{{3, &whole}, {3, &whole}})
	require.ErrorContains(t, err, "names rank 3 twice")
	_, err = NewHolders([]Holder{{3, &whole}, {4, &other}})
	require.ErrorContains(t, err, "size mismatch (got [6] at rank 4, [4] at rank 3)")
}

// TestPartsThatAreRefused has lists of spans that make no part.
func TestPartsThatAreRefused(t *testing.T) {
	for _, x := range []struct {
		lists [][]Span
		want  string
	}{
		{nil, "differ in number (got 0 lists for [4], want 1)"},
		{[][]Span{{{0, 5, 0}}}, "leaves the tensor (got [0, 5), want it within [0, 4))"},
		{[][]Span{{{-1, 1, 0}}}, "leaves the tensor"},
		{[][]Span{{{2, 1, 0}}}, "leaves the tensor"},
		{[][]Span{{{0, 2, 0}, {1, 3, 2}}}, "overlap at 1: give each element one place"},
		{[][]Span{{{0, 1, 0}, {1, 2, 2}}}, "do not fill the part (got one at offset 2, want 1)"},
		{[][]Span{{{0, 2, 0}, {2, 3, 1}}}, "do not fill the part (got one at offset 1, want 2)"},
		{[][]Span{{{0, 4, 0}, {0, 4, 4}}}, "more elements than the tensor (got 8, want at most 4)"},
		{[][]Span{make([]Span, maxSpans+1)}, "too many spans"},
	} {
		_, err := NewPart(tensor.ShapeOf(4), x.lists...)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, x.want)
	}
	_, err := NewPart(tensor.ShapeOf(-4))
	require.ErrorContains(t, err, "the shape is invalid")
	_, err = Whole(tensor.ShapeOf(1<<62 + 1))
	require.ErrorContains(t, err, "too long")
	p, err := NewPart(tensor.ShapeOf(4), []Span{{3, 4, 2}, {0, 1, 0}, {1, 2, 1}})
	require.NoError(t, err)
	require.Equal(t, []Span{{0, 2, 0}, {3, 4, 2}}, p.Spans(0), "joined, in the order of the whole")
}

// TestMissing names the elements that no holder has.
func TestMissing(t *testing.T) {
	shape := tensor.ShapeOf(8, 4)
	all := Span{0, 4, 0}
	a, err := NewPart(shape, []Span{{0, 3, 0}}, []Span{all})
	require.NoError(t, err)
	b, err := NewPart(shape, []Span{{5, 8, 0}}, []Span{all})
	require.NoError(t, err)
	h, err := NewHolders([]Holder{{1, &a}, {2, &b}})
	require.NoError(t, err)
	whole, err := Whole(shape)
	require.NoError(t, err)
	var m Moves
	require.EqualError(t, h.Assign(&whole, 9, 0, &m),
		"stepvan: invalid argument: layout: a source is missing: no rank has elements [3:5, 0:4] of the tensor of shape [8 4]")
}

// TestHoldersSpreadTheLoad has the rule by which destinations choose among copies.
func TestHoldersSpreadTheLoad(t *testing.T) {
	p, err := Whole(tensor.ShapeOf(4))
	require.NoError(t, err)
	h, err := NewHolders([]Holder{{4, &p}, {5, &p}, {6, &p}})
	require.NoError(t, err)
	var got []stepvan.Rank
	for target, rank := range []stepvan.Rank{10, 11, 12, 13, 4} {
		var m Moves
		require.NoError(t, h.Assign(&p, rank, target, &m))
		require.Equal(t, 1, m.Len())
		got = append(got, m.At(0).Source)
	}
	require.Equal(t, []stepvan.Rank{4, 5, 6, 4, 4}, got, "the last is a holder itself")
}

func TestNames(t *testing.T) {
	l := on([]int{2, 4, 1, 3}, Shard(0), StridedShard(1, 2), Replicate(), Partial(Product))
	require.Equal(t, "(2, 4, 1, 3)[S(0), SS(1, 2), R, P(product)]", l.String())
	require.Equal(t, "Kind(9)", Placement{Kind: 9}.String())
	require.Equal(t, "Op(9)", Op(9).String())
	for o := range opEnd {
		got, err := ParseOp(o.String())
		require.NoError(t, err)
		require.Equal(t, o, got)
	}
	_, err := ParseOp("mean")
	require.ErrorContains(t, err, `unknown reduction (got "mean", want one of [sum avg max min product])`)
	m := Mesh{Dims: []int{2, 3}}
	require.Equal(t, 6, m.Size())
	for i := range 6 {
		require.Equal(t, []int{i / 3, i % 3}, m.Coordinates(i))
		require.Equal(t, i, m.Index(m.Coordinates(i)))
		require.EqualValues(t, i, m.Rank(i))
	}
	require.EqualValues(t, 9, Mesh{[]int{2}, []stepvan.Rank{8, 9}}.Rank(1))
}
