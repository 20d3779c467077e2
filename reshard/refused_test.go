package reshard

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// TestWhatPlannersRefuse has the mistakes of models and groups. Every rank plans from the same rosters, so every rank
// gets the same error.
func TestWhatPlannersRefuse(t *testing.T) {
	src, dst := model{tp: 2, ep: 1, pp: 1, copies: 2}, model{first: 4, tp: 4, ep: 1, pp: 1, copies: 1}
	one := weight{name: "w", shape: []int64{8, 3}, split: true}
	experts := weight{name: "experts.weight%d", shape: []int64{2}, expert: 4}
	fused := weight{name: "experts.weight", shape: []int64{6, 2}, expert: 4, fused: true}
	for name, x := range map[string]struct {
		weights  []weight
		src, dst model
		change   func(w *world)
		options  Options
		want     []string
	}{
		"a source that nobody has": {change: func(w *world) { w.wants[5][0].Name, w.wants[5][0].Resolved = "v", "" }, want: []string{
			`no rank has parameter "v", which rank 5 wants`,
		}},
		"other totals": {change: func(w *world) { w.wants[5][0].Shape = tensor.ShapeOf(3, 3) }, want: []string{
			"size mismatch (got 2 x [4 3] in dimension 0 at the source, 4 x [3 3] in dimension 0 at the destination)", `of parameter "w" for rank 5`,
		}},
		"another number of dimensions": {change: func(w *world) { w.wants[5][0].Shape = tensor.ShapeOf(2) }, want: []string{"size mismatch", `parameter "w" for rank 5`}},
		"another type": {change: func(w *world) { w.wants[5][0].DType = tensor.Float16 }, want: []string{
			"type mismatch (got float32 at the source, float16 at the destination)", `parameter "w" for rank 5`,
		}},
		"sources of two types": {change: func(w *world) { w.sources[1][0].DType = tensor.Float16 }, want: []string{
			"ranks of one copy differ (got float32[4 3] at rank 0, float16[4 3] at rank 1)", `parameter "w"`,
		}},
		"a source with another share": {change: func(w *world) { w.sources[1][0].Shape = tensor.ShapeOf(5, 3) }, want: []string{
			"a source has another share of [9 3] than its place 0 of 2 (got [4 3] at rank 0, want [5 3])",
		}},
		"a dimension shorter than its shards": {
			weights: []weight{{name: "w", shape: []int64{3}, split: true}},
			change:  func(w *world) { w.wants[7][0].Shape = tensor.ShapeOf(1) }, // the last of 4 shards of 3 elements is empty
			want:    []string{"size mismatch", `parameter "w" for rank 7`},
		},
		"blocks that differ": {
			weights: []weight{{name: "w", shape: []int64{24}, split: true, blocks: []int64{16, 8}}},
			change:  func(w *world) { w.wants[4][0].Parallel.Sizes = []int64{3, 3} },
			want:    []string{"size mismatch in block 0 (got 2 x 8 at the source, 4 x 3 at the destination)", `parameter "w" for rank 4`},
		},
		"a rank in no group":    {change: func(w *world) { w.wants[5][0].Parallel.Tensor = []stepvan.Rank{6, 7} }, want: []string{"rank 5 is not in its own tensor parallel group [6 7]", "check the rank offsets"}},
		"a rank in one twice":   {change: func(w *world) { w.sources[1][0].Parallel.Data = []stepvan.Rank{1, 3, 1} }, want: []string{"data parallel group of rank 1 names rank 1 twice"}},
		"a rank out of range":   {change: func(w *world) { w.sources[1][0].Parallel.Data = []stepvan.Rank{1, 8} }, options: Options{World: 8}, want: []string{"rank 8 of group [1 8] of rank 1 is out of range (want less than 8): check the rank offsets"}},
		"a roster out of range": {options: Options{World: 4}, want: []string{"rank is out of range (got 4 of 4 ranks)"}},
		"a group with a gap":    {change: func(w *world) { w.sources[1] = nil }, want: []string{"a source is missing: rank 1 of tensor parallel group [0 1] does not have the parameter"}},
		"a parameter twice":     {change: func(w *world) { w.sources[1] = append(w.sources[1], w.sources[1][0]) }, want: []string{`rank 1 has parameter "w" twice`}},
		"a place without experts": {
			weights: []weight{experts}, src: model{tp: 1, ep: 2, pp: 1, copies: 2}, dst: model{first: 4, tp: 1, ep: 2, pp: 1, copies: 1},
			change: func(w *world) { w.wants[5][0].Resolved = "experts.weight0" },
			want:   []string{"no rank has place 1 of its expert parallel group, for rank 5 (got 0 at rank 0, 0 at rank 2)", `parameter "experts.weight0"`},
		},
		"fused experts that cannot be counted": {
			weights: []weight{fused}, src: model{tp: 1, ep: 2, pp: 1, copies: 2}, dst: model{first: 4, tp: 1, ep: 3, pp: 1, copies: 1},
			want: []string{"no dimension counts the experts (got shape [3 2] at one of 2 ranks with 4 experts)", `parameter "experts.weight"`},
		},
		"experts without a group": {
			weights: []weight{experts}, src: model{tp: 1, ep: 2, pp: 1, copies: 2}, dst: model{first: 4, tp: 1, ep: 2, pp: 1, copies: 1},
			change: func(w *world) { w.sources[0][0].Parallel.Groups.Expert = []stepvan.Rank{0} },
			want:   []string{"expert parallel groups of the sources differ in size"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			weights, from, to := x.weights, x.src, x.dst
			if weights == nil {
				weights = []weight{one}
			}
			if from.tp == 0 {
				from, to = src, dst
			}
			w := newWorld(t, from, to, weights...)
			if x.change != nil {
				x.change(w)
			}
			for r := range w.rosters {
				w.rosters[r] = w.roster(stepvan.Rank(r))
			}
			p, err := NewPlanner(w.rosters, x.options)
			require.Nil(t, p)
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			for _, text := range x.want {
				require.ErrorContains(t, err, text)
			}
		})
	}
}

func TestTwoRostersOfOneRank(t *testing.T) {
	b, err := (&Roster{Rank: 3}).Append(nil)
	require.NoError(t, err)
	_, err = NewPlanner([][]byte{b, b}, Options{})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "rank 3 has sent two rosters")
	_, err = NewPlanner([][]byte{b[:2]}, Options{})
	var broken *stepvan.ProtocolError
	require.ErrorAs(t, err, &broken)
}

func TestWhatRostersRefuse(t *testing.T) {
	part, err := layout.Whole(tensor.ShapeOf(4))
	require.NoError(t, err)
	good := Parameter{Name: "w", Form: Form{DType: tensor.Float32, Shape: tensor.ShapeOf(4)}}
	for _, x := range []struct {
		change func(r *Roster, p *Parameter)
		want   string
	}{
		{func(r *Roster, _ *Parameter) { r.Rank = -1 }, "rank is out of range (got -1"},
		{func(_ *Roster, p *Parameter) { p.Name = "" }, "name of parameter 0 has a bad length (got 0"},
		{func(_ *Roster, p *Parameter) { p.DType = 0 }, `the type does not exist (got 0): use one of package tensor, of parameter "w"`},
		{func(_ *Roster, p *Parameter) { p.Shape = tensor.ShapeOf(-1) }, "the shape is invalid"},
		{func(_ *Roster, p *Parameter) { p.Part, p.Parallel = &part, new(Parallel) }, "both attributes and a part"},
		{func(_ *Roster, p *Parameter) { p.Part, p.Shape = &part, tensor.ShapeOf(3) }, "got [3] for a part of [4]"},
		{func(_ *Roster, p *Parameter) { p.Parallel = &Parallel{Experts: -1} }, "number of experts is out of range"},
		{func(_ *Roster, p *Parameter) { p.Parallel = &Parallel{Expert: true} }, "has no expert parallel group"},
		{func(_ *Roster, p *Parameter) { p.Parallel = &Parallel{Dim: 9} }, "partition_dim is out of range"},
		{func(_ *Roster, p *Parameter) { p.Parallel = &Parallel{Sizes: []int64{-1}} }, "partition_sizes[0] is out of range"},
		{func(_ *Roster, p *Parameter) { p.Parallel = &Parallel{Groups: Groups{Data: []stepvan.Rank{-2}}} }, "rank is out of range (got -2"},
	} {
		r, p := Roster{Rank: 1}, good
		x.change(&r, &p)
		r.Destinations = []Parameter{p}
		b, err := r.Append([]byte("kept"))
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, x.want)
		require.Equal(t, "kept", string(b))
	}
}

func TestTensorsThatChanged(t *testing.T) {
	x := Tensor{Name: "w", DType: tensor.Float32, Shape: tensor.ShapeOf(4)}
	require.NoError(t, x.CheckShape(tensor.Float32, tensor.ShapeOf(4)))
	require.ErrorContains(t, x.CheckShape(tensor.Float16, tensor.ShapeOf(4)), `"w" is not what the plan was made for (got float16[4], want float32[4])`)
}
