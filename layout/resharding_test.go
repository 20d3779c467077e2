package layout

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// line is a move of a tensor of one dimension.
type line struct {
	source           stepvan.Rank
	src, dst, extent int64
}

func lines(m *Moves, dim int) (all []line) {
	for i := range m.Len() {
		v := m.At(i)
		all = append(all, line{v.Source, v.Src[dim], v.Dst[dim], v.Extent[dim]})
	}
	return all
}

// TestVectorsOfSlices has the published slices of parameters that both sides divide.
func TestVectorsOfSlices(t *testing.T) {
	for _, x := range []struct {
		name     string
		src, dst Partition
		total    int64
		target   int
		want     []line
	}{
		{name: "2 to 3", src: Partition{World: 2}, dst: Partition{World: 3}, total: 12, target: 1, want: []line{{0, 4, 0, 2}, {1, 0, 2, 2}}},
		{name: "4 to 2", src: Partition{World: 4}, dst: Partition{World: 2}, total: 128, target: 1, want: []line{{2, 0, 0, 32}, {3, 0, 32, 32}}},
		{
			name: "2 to 1, stride 2", src: Partition{World: 2, Stride: 2}, dst: Partition{World: 1}, total: 16,
			want: []line{{0, 0, 0, 4}, {1, 0, 4, 4}, {0, 4, 8, 4}, {1, 4, 12, 4}},
		},
		{
			name: "blocks, 2 to 1", src: Partition{World: 2, Sizes: []int64{32, 16}}, dst: Partition{World: 1}, total: 96,
			want: []line{{0, 0, 0, 32}, {1, 0, 32, 32}, {0, 32, 64, 16}, {1, 32, 80, 16}},
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			for dims := range 3 { // of the parameter behind and before the one that is divided
				shape := make([]int64, 3)
				for i := range shape {
					shape[i] = 5
				}
				shape[dims] = x.total
				src, dst := x.src, x.dst
				src.Dim, dst.Dim = dims, dims
				require.Equal(t, x.want, lines(plan(t, src, dst, shape, x.target), dims))
			}
		})
	}
}

// plan is the moves of one part of dst. Part i of src is at rank i.
func plan(t *testing.T, src, dst Partition, shape []int64, target int) *Moves {
	t.Helper()
	from, err := src.Divide(shapeOf(t, shape))
	require.NoError(t, err)
	to, err := dst.Divide(shapeOf(t, shape))
	require.NoError(t, err)
	p, err := NewPlanner(from, to)
	require.NoError(t, err)
	m := new(Moves)
	require.NoError(t, p.Assign(target, Sources{}, m))
	return m
}

// TestCoverage moves parameters between the sizes of tensor parallel groups that the spec names. The lengths do not
// have to be multiples of both.
func TestCoverage(t *testing.T) {
	type of struct{ src, dst Partition }
	cases := []of{{
		Partition{World: 2, Sizes: []int64{24, 24, 4, 4, 2}}, // z, x, B, C, dt
		Partition{World: 4, Sizes: []int64{12, 12, 2, 2, 1}},
	}, {
		Partition{}, Partition{World: 2}, // only one side is divided, whatever group the other has
	}}
	for _, n := range [][2]int{{2, 1}, {1, 2}, {2, 4}, {2, 2}, {4, 2}, {3, 2}} {
		for stride := 1; stride <= 2; stride++ {
			cases = append(cases, of{Partition{World: n[0], Stride: stride}, Partition{World: n[1]}})
			cases = append(cases, of{Partition{World: n[0]}, Partition{World: n[1], Stride: stride}})
		}
	}
	for _, x := range cases {
		lengths := []int64{116}
		if x.src.Sizes == nil {
			lengths = []int64{24, 12, 7, 1}
		}
		for _, n := range lengths {
			t.Run(fmt.Sprintf("%d to %d of %d", x.src.World, x.dst.World, n), func(t *testing.T) {
				sent := map[stepvan.Rank]int64{}
				for target := range x.dst.Parts() {
					m := plan(t, x.src, x.dst, []int64{n}, target)
					want := [][]int64{naivePartition(x.dst, blocksOf(x.dst), []int64{n}, target)[0]}
					got := empty(want)
					for i := range m.Len() {
						v := m.At(i)
						a := filled(naivePartition(x.src, blocksOf(x.src), []int64{n}, int(v.Source)), []int64{n})
						write(t, &v, &a, &got)
						sent[v.Source] += v.Extent[0]
					}
					require.Equal(t, filled(want, []int64{n}).values, got.values)
				}
				for source := range x.src.Parts() { // every source has sent its part, once
					p, err := x.src.Part(shapeOf(t, []int64{n}), source)
					require.NoError(t, err)
					require.Equal(t, p.Elems(), sent[stepvan.Rank(source)])
				}
			})
		}
	}
}

func blocksOf(p Partition) (all []int64) {
	for _, size := range p.Sizes {
		all = append(all, size*int64(p.World))
	}
	return all
}

// dense are 8 ranks with the tensor parallel groups 01, 23, 45 and 67, and the data parallel groups 0246 and 1357.
func dense() (all []Member) {
	data := [][]stepvan.Rank{{0, 2, 4, 6}, {1, 3, 5, 7}}
	for i := range stepvan.Rank(8) {
		pair := i &^ 1
		all = append(all, Member{Rank: i, Tensor: []stepvan.Rank{pair, pair + 1}, Data: data[i%2]})
	}
	return all
}

// TestVectorsOfSources has the published choice of sources.
func TestVectorsOfSources(t *testing.T) {
	g, err := NewDataGroups(dense())
	require.NoError(t, err)
	whole, divided := &Partition{}, &Partition{World: 2}
	for i := range stepvan.Rank(8) {
		for _, dst := range []stepvan.Rank{i, 8 + i, 800 + i} { // in the source's job, and in another
			got, err := g.Sources(&Member{Rank: dst}, whole)
			require.NoError(t, err)
			require.Equal(t, Sources{Ranks: []stepvan.Rank{i}}, got)
			got, err = g.Sources(&Member{Rank: dst}, divided)
			require.NoError(t, err)
			require.Equal(t, Sources{Ranks: []stepvan.Rank{i &^ 1, i | 1}}, got)
		}
	}
}

// experts are 4 ranks: place e of the expert parallel groups 02 and 13.
func experts() []Member {
	return []Member{
		{Rank: 0, Tensor: []stepvan.Rank{0, 1}, Data: []stepvan.Rank{0}, Expert: []stepvan.Rank{0, 2}},
		{Rank: 1, Tensor: []stepvan.Rank{0, 1}, Data: []stepvan.Rank{1}, Expert: []stepvan.Rank{1, 3}},
		{Rank: 2, Tensor: []stepvan.Rank{2, 3}, Data: []stepvan.Rank{2}, Expert: []stepvan.Rank{0, 2}},
		{Rank: 3, Tensor: []stepvan.Rank{2, 3}, Data: []stepvan.Rank{3}, Expert: []stepvan.Rank{1, 3}},
	}
}

func TestSourcesOfExperts(t *testing.T) {
	one := func(members []Member, dst Member, p Partition) ([]stepvan.Rank, error) {
		g, err := NewDataGroups(members)
		require.NoError(t, err)
		s, err := g.Sources(&dst, &p)
		return s.Ranks, err
	}
	for _, x := range []struct {
		name    string
		members []Member
		dst     Member
		p       Partition
		want    []stepvan.Rank
		err     string
	}{
		{"equal sizes, place 0", experts(), Member{Rank: 10, Expert: []stepvan.Rank{10, 11}}, Partition{World: 2}, []stepvan.Rank{0, 1}, ""},
		{"equal sizes, place 1", experts(), Member{Rank: 11, Expert: []stepvan.Rank{10, 11}}, Partition{World: 2}, []stepvan.Rank{2, 3}, ""},
		{"itself, if the place is right", experts(), Member{Rank: 3, Expert: []stepvan.Rank{1, 3}}, Partition{}, []stepvan.Rank{3}, ""},
		{"not itself in another place", experts(), Member{Rank: 3, Expert: []stepvan.Rank{3, 1}}, Partition{}, []stepvan.Rank{1}, ""},
		{"itself, of other sizes", experts(), Member{Rank: 3, Expert: []stepvan.Rank{0, 1, 2, 3}}, Partition{}, []stepvan.Rank{3}, ""},
		{"other sizes", experts(), Member{Rank: 7, Expert: []stepvan.Rank{4, 5, 6, 7}}, Partition{}, []stepvan.Rank{3}, ""},
		{"not an expert's at the destination", experts(), Member{Rank: 4}, Partition{World: 2}, []stepvan.Rank{0, 1}, ""},
		{"a fused tensor", experts(), Member{Rank: 4}, Partition{World: 2, ExpertWorld: 2}, []stepvan.Rank{0, 1, 2, 3}, ""},
		{"a fused tensor, not divided else", experts(), Member{Rank: 5}, Partition{ExpertWorld: 2}, []stepvan.Rank{1, 3}, ""},
		{"a fused tensor of other groups", experts(), Member{Rank: 5}, Partition{ExpertWorld: 4}, nil, "differ in size (got 4, want 2)"},
		{
			"no such place", experts()[:2], Member{Rank: 11, Expert: []stepvan.Rank{10, 11}}, Partition{World: 2}, nil,
			"no rank has place 1 of its expert parallel group, for rank 11 (got 0 at rank 0, 0 at rank 1)",
		},
		{"a rank outside of its group", experts(), Member{Rank: 9, Expert: []stepvan.Rank{10, 11}}, Partition{}, nil, "rank 9 is not in its own"},
		{"a tensor parallel group with a gap", experts()[1:], Member{Rank: 9}, Partition{World: 2}, nil, "rank 0 of tensor parallel group [0 1] does not have the parameter"},
		{"a tensor parallel group of another size", experts(), Member{Rank: 9}, Partition{World: 4}, nil, "differ in size (got 4, want 2)"},
		{"a rank out of range", experts(), Member{Rank: -1}, Partition{}, nil, "out of range"},
	} {
		t.Run(x.name, func(t *testing.T) {
			got, err := one(x.members, x.dst, x.p)
			if x.err != "" {
				require.ErrorIs(t, err, stepvan.ErrInvalid)
				require.ErrorContains(t, err, x.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, x.want, got)
		})
	}
}

// TestFusedExperts moves a fused tensor of 8 experts from 2 places to 4, with tensor parallel groups on both sides.
func TestFusedExperts(t *testing.T) {
	src := Partition{ExpertWorld: 2, Dim: 1, World: 2}
	dst := Partition{ExpertWorld: 4, Dim: 1, World: 1}
	shape := []int64{8, 6}
	for target := range 4 {
		m := plan(t, src, dst, shape, target)
		require.Equal(t, 2, m.Len())
		for i := range 2 {
			v := m.At(i)
			require.EqualValues(t, target/2*2+i, v.Source)
			require.Equal(t, []int64{int64(target % 2 * 2), 0}, v.Src[:2])
			require.Equal(t, []int64{2, 3}, v.Extent[:2])
		}
	}
}

func TestGroupsThatAreRefused(t *testing.T) {
	for name, x := range map[string]struct {
		change func(m []Member) []Member
		want   string
	}{
		"nobody":               {func([]Member) []Member { return nil }, "no rank has the parameter"},
		"a rank in no group":   {func(m []Member) []Member { m[1].Tensor = []stepvan.Rank{6, 7}; return m }, "rank 1 is not in its own tensor parallel group"},
		"a rank in one twice":  {func(m []Member) []Member { m[1].Data = []stepvan.Rank{1, 1}; return m }, "data parallel group of rank 1 names rank 1 twice"},
		"a rank out of range":  {func(m []Member) []Member { m[1].Data = []stepvan.Rank{1, -4}; return m }, "out of range (got -4"},
		"a parameter twice":    {func(m []Member) []Member { return append(m, m[0]) }, "rank 0 has the parameter twice"},
		"other experts' sizes": {func(m []Member) []Member { m[1].Expert = []stepvan.Rank{1}; return m }, "expert parallel groups of the sources differ in size"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewDataGroups(x.change(dense()))
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			require.ErrorContains(t, err, x.want)
		})
	}
}

// TestStability adds a destination. The moves of the others stay the same, and so do their sources.
func TestStability(t *testing.T) {
	plans := func(world int, ranks []stepvan.Rank) map[stepvan.Rank][]line {
		g, err := NewDataGroups(dense())
		require.NoError(t, err)
		src, dst := Partition{World: 2}, Partition{World: world}
		from, err := src.Divide(tensor.ShapeOf(24))
		require.NoError(t, err)
		to, err := dst.Divide(tensor.ShapeOf(24))
		require.NoError(t, err)
		p, err := NewPlanner(from, to)
		require.NoError(t, err)
		all := map[stepvan.Rank][]line{}
		for i, rank := range ranks {
			sources, err := g.Sources(&Member{Rank: rank}, &src)
			require.NoError(t, err)
			var m Moves
			require.NoError(t, p.Assign(i%world, sources, &m))
			all[rank] = lines(&m, 0)
		}
		return all
	}
	before := plans(2, []stepvan.Rank{8, 9})
	after := plans(2, []stepvan.Rank{8, 9, 10, 11})
	for rank, want := range before {
		require.Equal(t, want, after[rank])
	}
	require.NotEqual(t, before[8], after[10]) // it reads from another copy
}

// TestAgree has the shapes of both sides, and what they do not agree on.
func TestAgree(t *testing.T) {
	mamba := []int64{24, 24, 4, 4, 2}
	for _, x := range []struct {
		name     string
		src      Partition
		srcLocal []int64
		dst      Partition
		dstLocal []int64
		want     []int64
		sizes    []int64 // of the destination
		err      string
	}{
		{name: "2 to 4", src: Partition{World: 2}, srcLocal: []int64{8, 3}, dst: Partition{World: 4}, dstLocal: []int64{4, 3}, want: []int64{16, 3}},
		{name: "dimension 1 to 0", src: Partition{World: 2, Dim: 1}, srcLocal: []int64{8, 3}, dst: Partition{World: 4}, dstLocal: []int64{2, 6}, want: []int64{8, 6}},
		{name: "one side replicated", src: Partition{}, srcLocal: []int64{8}, dst: Partition{World: 4}, dstLocal: []int64{2}, want: []int64{8}},
		{
			name: "blocks of the source alone", src: Partition{World: 2, Sizes: mamba}, srcLocal: []int64{58}, dst: Partition{World: 1}, dstLocal: []int64{116},
			want: []int64{116},
		},
		{
			name: "blocks for both", src: Partition{World: 2, Sizes: []int64{32, 16}}, srcLocal: []int64{48}, dst: Partition{World: 4}, dstLocal: []int64{24},
			want: []int64{96}, sizes: []int64{16, 8},
		},
		{
			name: "blocks of the destination alone", src: Partition{World: 2}, srcLocal: []int64{48}, dst: Partition{World: 4, Sizes: []int64{16, 8}}, dstLocal: []int64{24},
			want: []int64{96}, sizes: []int64{16, 8},
		},
		{
			name: "totals", src: Partition{World: 2}, srcLocal: []int64{8}, dst: Partition{World: 3}, dstLocal: []int64{4},
			err: "size mismatch (got 2 x [8] in dimension 0 at the source, 3 x [4] in dimension 0 at the destination)",
		},
		{
			name: "a block", src: Partition{World: 2, Sizes: []int64{4, 4}}, srcLocal: []int64{8}, dst: Partition{World: 4, Sizes: []int64{3, 1}}, dstLocal: []int64{4},
			err: "size mismatch in block 0 (got 2 x 4 at the source, 4 x 3 at the destination)",
		},
		{
			name: "numbers of blocks", src: Partition{World: 2, Sizes: []int64{4, 4}}, srcLocal: []int64{8}, dst: Partition{World: 4, Sizes: []int64{4}}, dstLocal: []int64{4},
			err: "different numbers of blocks",
		},
		{
			name: "a block that does not divide", src: Partition{World: 2, Sizes: []int64{5, 3}}, srcLocal: []int64{8}, dst: Partition{World: 4}, dstLocal: []int64{4},
			err: "partition_sizes[0] cannot be divided (got 10 elements in all, want a multiple of 4)",
		},
		{name: "a dimension too far", src: Partition{World: 2, Dim: 1}, srcLocal: []int64{8}, dst: Partition{}, dstLocal: []int64{8}, err: "cuts dimension 1"},
		{name: "too long", src: Partition{World: 8}, srcLocal: []int64{1 << 60}, dst: Partition{}, dstLocal: []int64{8}, err: "too long in dimension 0"},
	} {
		t.Run(x.name, func(t *testing.T) {
			got, err := Agree(&x.src, shapeOf(t, x.srcLocal), &x.dst, shapeOf(t, x.dstLocal))
			if x.err != "" {
				require.ErrorIs(t, err, stepvan.ErrInvalid)
				require.ErrorContains(t, err, x.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, shapeOf(t, x.want), got)
			require.Equal(t, x.sizes, x.dst.Sizes)
			require.NoError(t, x.src.CheckShape(got))
			require.NoError(t, x.dst.CheckShape(got))
			for number := range x.dst.Parts() {
				p, err := x.dst.Part(got, number)
				require.NoError(t, err)
				require.Equal(t, shapeOf(t, x.dstLocal), p.Local())
			}
		})
	}
}

func TestPartitionsThatAreRefused(t *testing.T) {
	for _, x := range []struct {
		p     Partition
		shape []int64
		want  string
	}{
		{Partition{Dim: -1, World: 2}, []int64{4}, "partition_dim is out of range (got -1"},
		{Partition{Dim: 1, World: 2}, []int64{4}, "cuts dimension 1, which a tensor of shape [4] does not have"},
		{Partition{Stride: -1, World: 2}, []int64{4}, "partition_stride is out of range"},
		{Partition{World: 1 << 20}, []int64{4}, "size of the tensor parallel group is out of range"},
		{Partition{World: 1 << 9, ExpertWorld: 1 << 9}, []int64{4}, "number of parts is out of range"},
		{Partition{World: 1 << 8, Stride: 1 << 13}, []int64{4}, "cut too often"},
		{Partition{World: 2, Sizes: []int64{-1}}, []int64{4}, "partition_sizes[0] is out of range"},
		{Partition{World: 2, Sizes: []int64{1 << 60, 1 << 62}}, []int64{4}, "partition_sizes[1] is out of range"},
		{Partition{World: 2, Sizes: []int64{3}}, []int64{4}, "does not match its partition_sizes (got 4 elements, want 2 ranks with [3] each)"},
	} {
		_, err := x.p.Divide(shapeOf(t, x.shape))
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, x.want)
		_, err = x.p.Part(shapeOf(t, x.shape), 0)
		require.ErrorContains(t, err, x.want)
	}
	_, err := Partition{World: 2}.Part(tensor.ShapeOf(4), 2)
	require.ErrorContains(t, err, "no part has this number (got 2, want 0 to 1)")
	_, err = Partition{}.Divide(tensor.ShapeOf(-1))
	require.ErrorContains(t, err, "the shape is invalid")
}

func TestEmptyParts(t *testing.T) {
	p := Partition{World: 4}
	var local []int64
	for i := range 4 {
		part, err := p.Part(tensor.ShapeOf(5), i)
		require.NoError(t, err)
		local = append(local, part.Elems())
	}
	require.Equal(t, []int64{2, 2, 1, 0}, local)
	require.Zero(t, plan(t, Partition{World: 2}, p, []int64{5}, 3).Len())
	require.True(t, slices.Equal([]line{{1, 1, 0, 1}}, lines(plan(t, Partition{World: 2}, p, []int64{5}, 2), 0)))
}
