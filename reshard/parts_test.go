package reshard

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// ofLayout are the parts that a layout gives to ranks from first on.
func ofLayout(t *testing.T, l layout.Layout, shape tensor.Shape, first int) map[stepvan.Rank]held {
	all := map[stepvan.Rank]held{}
	for i := range l.Mesh.Size() {
		part, err := l.Part(shape, i)
		require.NoError(t, err)
		f := Form{DType: tensor.Float32, Shape: part.Local(), Part: &part}
		all[stepvan.Rank(first+i)] = held{Parameter{Name: "w", Form: f}, filled(&part, "w")}
	}
	return all
}

// ofMegatron is what a model has.
func ofMegatron(t *testing.T, m model, w weight) map[stepvan.Rank]held {
	all := map[stepvan.Rank]held{}
	for i := range m.size() {
		r := stepvan.Rank(m.first + i)
		all[r] = w.at(t, m, r)[0]
	}
	return all
}

// ofWhole is the whole tensor at some ranks.
func ofWhole(t *testing.T, shape tensor.Shape, ranks ...stepvan.Rank) map[stepvan.Rank]held {
	part, err := layout.Whole(shape)
	require.NoError(t, err)
	all := map[stepvan.Rank]held{}
	for _, r := range ranks {
		all[r] = held{Parameter{Name: "w", Form: Form{DType: tensor.Float32, Shape: shape}}, filled(&part, "w")}
	}
	return all
}

func worldOf(t *testing.T, n int, src, dst map[stepvan.Rank]held) *world {
	w := &world{t: t, sources: map[stepvan.Rank][]held{}, wants: map[stepvan.Rank][]held{}}
	for r := range stepvan.Rank(n) {
		if h, ok := src[r]; ok {
			w.sources[r] = []held{h}
		}
		if h, ok := dst[r]; ok {
			w.wants[r] = []held{h}
		}
		w.rosters = append(w.rosters, w.roster(r))
	}
	return w
}

// TestParts moves between parts of any kind, on the same ranks and on others.
func TestParts(t *testing.T) {
	shape := tensor.ShapeOf(7, 12)
	weight := weight{name: "w", shape: []int64{7, 12}, split: true, dim: 1, stride: 2}
	kinds := func(first int) []map[stepvan.Rank]held {
		return []map[stepvan.Rank]held{
			ofLayout(t, layout.Layout{Mesh: layout.MeshOf(2, 2), Placements: []layout.Placement{layout.StridedShard(1, 2), layout.Shard(1)}}, shape, first),
			ofLayout(t, layout.Layout{Mesh: layout.MeshOf(4), Placements: []layout.Placement{layout.Shard(0)}}, shape, first),
			ofMegatron(t, model{first: first, tp: 2, ep: 1, pp: 1, copies: 2}, weight),
			ofWhole(t, shape, stepvan.Rank(first), stepvan.Rank(first+2)),
		}
	}
	for _, src := range kinds(0) {
		for _, apart := range []int{0, 4} {
			for _, dst := range kinds(apart) {
				worldOf(t, 8, src, dst).run(Options{})
			}
		}
	}
}

// TestCopiesShareTheLoad has three ranks with all of a tensor, and six that want it.
func TestCopiesShareTheLoad(t *testing.T) {
	shape := tensor.ShapeOf(4)
	plans := worldOf(t, 9, ofWhole(t, shape, 0, 1, 2), ofWhole(t, shape, 3, 4, 5, 6, 7, 8)).run(Options{})
	for r := range stepvan.Rank(3) {
		require.Equal(t, 2, plans[r].Sends.Len())
	}
}

func TestPartsThatAreRefused(t *testing.T) {
	shape := tensor.ShapeOf(4, 6)
	halves := layout.Layout{Mesh: layout.MeshOf(2), Placements: []layout.Placement{layout.Shard(0)}}
	for _, x := range []struct {
		name     string
		src, dst map[stepvan.Rank]held
		change   func(w *world)
		want     string
	}{
		{name: "another whole", src: ofLayout(t, halves, shape, 0), dst: ofWhole(t, tensor.ShapeOf(4, 5), 3), want: "size mismatch (got a whole of [4 6] at the sources, and [4 5]"},
		{name: "sources of two wholes", src: ofWhole(t, shape, 0, 1), dst: ofWhole(t, shape, 3), change: func(w *world) { w.sources[1][0].Shape = tensor.ShapeOf(2) }, want: "size mismatch"},
		{name: "sources of two types", src: ofWhole(t, shape, 0, 1), dst: ofWhole(t, shape, 3), change: func(w *world) { w.sources[1][0].DType = tensor.Int32 }, want: "sources differ in type (got float32 at rank 0, int32 at rank 1)"},
		{name: "another type", src: ofWhole(t, shape, 0), dst: ofWhole(t, shape, 3), change: func(w *world) { w.wants[3][0].DType = tensor.Int32 }, want: "type mismatch (got float32 at the source, int32"},
		{name: "a half that nobody has", src: ofLayout(t, halves, shape, 0), dst: ofWhole(t, shape, 3), change: func(w *world) { w.sources[1] = nil }, want: "no rank has elements [2:4, 0:6]"},
		{
			name: "fused experts to a destination without groups", want: "a fused tensor of experts goes to a destination without groups",
			src: ofMegatron(t, model{tp: 1, ep: 2, pp: 1, copies: 1}, weight{name: "w", shape: []int64{4, 6}, expert: 4, fused: true}), dst: ofWhole(t, shape, 3),
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := worldOf(t, 4, x.src, x.dst)
			if x.change != nil {
				x.change(w)
			}
			for r := range w.rosters {
				w.rosters[r] = w.roster(stepvan.Rank(r))
			}
			_, err := NewPlanner(w.rosters, Options{})
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			require.ErrorContains(t, err, x.want)
			require.ErrorContains(t, err, `parameter "w" for rank 3`)
		})
	}
}
