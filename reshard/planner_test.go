package reshard

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// transformer are the weights of two layers in four stages, with experts and a buffer of the router.
func transformer() []weight {
	all := []weight{
		{name: "embedding.word_embeddings.weight", shape: []int64{24, 3}, split: true},
		{name: "decoder.final_layernorm.weight", shape: []int64{3}, stage: 3},
		{name: "decoder.scale", shape: []int64{}, stage: 1},
	}
	for layer := range 4 {
		prefix := fmt.Sprintf("decoder.layers.%d.", layer)
		all = append(all,
			weight{name: prefix + "qkv.weight", shape: []int64{24, 3}, stage: layer, split: true},
			weight{name: prefix + "proj.weight", shape: []int64{3, 16}, stage: layer, split: true, dim: 1},
			weight{name: prefix + "mlp.fc1.weight", shape: []int64{16, 3}, stage: layer, split: true, stride: 2},
			weight{name: prefix + "in_proj.weight", shape: []int64{56, 2}, stage: layer, split: true, blocks: []int64{24, 16, 8, 4, 4}},
			weight{name: prefix + "experts.weight%d", shape: []int64{8, 2}, stage: layer, split: true, dim: layer % 2, expert: 4},
			weight{name: prefix + "router.expert_bias", shape: []int64{4}, stage: layer, buffer: true},
		)
		if layer == 1 {
			all[len(all)-2].shape = []int64{2, 8}
		}
	}
	return all
}

// TestModels reshards a model between the layouts that the spec names, in one job and between two.
func TestModels(t *testing.T) {
	for _, x := range []struct{ src, dst model }{
		{model{tp: 2, ep: 1, pp: 1}, model{tp: 1, ep: 1, pp: 1}},
		{model{tp: 2, ep: 1, pp: 1}, model{tp: 4, ep: 1, pp: 1}},
		{model{tp: 1, ep: 1, pp: 2}, model{tp: 2, ep: 1, pp: 4}},
		{model{tp: 2, ep: 1, pp: 1}, model{tp: 1, ep: 1, pp: 2}},
		{model{tp: 1, ep: 2, pp: 1}, model{tp: 1, ep: 4, pp: 1}},
		{model{tp: 1, ep: 2, pp: 1}, model{tp: 1, ep: 1, pp: 1}},
		{model{tp: 1, ep: 1, pp: 1}, model{tp: 1, ep: 2, pp: 1}},
		{model{tp: 4, ep: 1, pp: 1}, model{tp: 2, ep: 2, pp: 1}},
		{model{tp: 4, ep: 1, pp: 1}, model{tp: 1, ep: 4, pp: 1}},
		{model{tp: 2, ep: 2, pp: 1}, model{tp: 4, ep: 1, pp: 1}},
		{model{tp: 1, ep: 4, pp: 1}, model{tp: 4, ep: 1, pp: 1}},
		{model{tp: 2, ep: 2, pp: 1}, model{tp: 2, ep: 2, pp: 1}},
	} {
		for copies := 1; copies <= 2; copies++ {
			for _, apart := range []bool{false, true} {
				src, dst := x.src, x.dst
				src.copies, dst.copies = copies, 3-copies
				if apart {
					dst.first = src.size() + 1 // and one idle rank between them
				}
				t.Run(fmt.Sprintf("%v to %v", src, dst), func(t *testing.T) {
					newWorld(t, src, dst, transformer()...).run(Options{})
				})
			}
		}
	}
}

// TestFusedExperts moves tensors that have the experts of a rank in their first dimension.
func TestFusedExperts(t *testing.T) {
	for _, x := range [][2]int{{2, 4}, {4, 2}, {1, 2}, {2, 1}, {2, 2}} {
		w := weight{name: "experts.weight", shape: []int64{8, 6, 2}, split: true, dim: 1, expert: 8, fused: true}
		newWorld(t, model{tp: 2, ep: x[0], pp: 1, copies: 1}, model{tp: 3, ep: x[1], pp: 1, copies: 1}, w).run(Options{})
	}
}

// TestVectors has the published slices, through the whole planner.
func TestVectors(t *testing.T) {
	for _, x := range []struct {
		src, dst int
		w        weight
		target   stepvan.Rank
		want     [][4]int64 // source rank, source offset, destination offset, length
	}{
		{2, 3, weight{shape: []int64{12, 2}}, 1, [][4]int64{{0, 4, 0, 2}, {1, 0, 2, 2}}},
		{4, 2, weight{shape: []int64{128, 2}}, 1, [][4]int64{{2, 0, 0, 32}, {3, 0, 32, 32}}},
		{2, 1, weight{shape: []int64{16, 2}, stride: 2}, 0, [][4]int64{{0, 0, 0, 4}, {1, 0, 4, 4}, {0, 4, 8, 4}, {1, 4, 12, 4}}},
		{2, 1, weight{shape: []int64{96, 2}, blocks: []int64{64, 32}}, 0, [][4]int64{{0, 0, 0, 32}, {1, 0, 32, 32}, {0, 32, 64, 16}, {1, 32, 80, 16}}},
	} {
		x.w.name, x.w.split = "w", true
		src := model{tp: x.src, ep: 1, pp: 1, copies: 1}
		plans := newWorld(t, src, model{first: x.src, tp: x.dst, ep: 1, pp: 1, copies: 1}, x.w).run(Options{})
		plan := plans[stepvan.Rank(x.src)+x.target]
		var got [][4]int64
		for i := range plan.Recvs.Len() {
			op := plan.Recvs.At(i)
			require.Equal(t, uint8(0b10), op.Whole, "the other dimension")
			got = append(got, [4]int64{int64(op.Peer), op.Theirs[0], op.Mine[0], op.Extent[0]})
		}
		require.Equal(t, x.want, got)
	}
}

// TestVectorOfSources has the published choice of sources: destination i takes source i.
func TestVectorOfSources(t *testing.T) {
	src := model{tp: 2, ep: 1, pp: 1, copies: 4}
	plans := newWorld(t, src, model{first: 8, tp: 1, ep: 1, pp: 1, copies: 8}, weight{name: "norm", shape: []int64{3}}).run(Options{})
	for i := range stepvan.Rank(8) {
		require.Equal(t, i, plans[8+i].Recvs.At(0).Peer)
	}
}

// TestRolesOfRanks has ranks that only send, only receive, do both, or neither.
func TestRolesOfRanks(t *testing.T) {
	w := weight{name: "w", shape: []int64{4}, split: true}
	plans := newWorld(t, model{tp: 2, ep: 1, pp: 1, copies: 1}, model{first: 1, tp: 2, ep: 1, pp: 1, copies: 1}, w).run(Options{})
	sends := func(r stepvan.Rank) int { return plans[r].Sends.Len() }
	recvs := func(r stepvan.Rank) int { return plans[r].Recvs.Len() }
	require.Equal(t, []int{1, 0, 1, 1, 0, 1}, []int{sends(0), recvs(0), sends(1), recvs(1), sends(2), recvs(2)})

	p, err := NewPlanner(nil, Options{})
	require.NoError(t, err)
	empty, err := p.Plan(5)
	require.NoError(t, err)
	require.Zero(t, empty.Sends.Len()+empty.Recvs.Len())
	require.Equal(t, 1, empty.Batches)
	_, err = p.Plan(-1)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}

// TestStability adds a destination before and behind the others, whose operations stay as they are.
func TestStability(t *testing.T) {
	src := model{tp: 2, ep: 1, pp: 1, copies: 2}
	w := newWorld(t, src, model{first: 6, tp: 2, ep: 1, pp: 1, copies: 1}, transformer()...)
	before := w.run(Options{})
	more := newWorld(t, src, model{first: 4, tp: 2, ep: 1, pp: 1, copies: 3}, transformer()...)
	for r := range w.wants { // the groups of the destinations stay as they were, too
		if r >= 6 && r < 8 {
			more.wants[r] = w.wants[r]
			more.rosters[r] = w.rosters[r]
		}
	}
	after := more.run(Options{})
	for r := stepvan.Rank(6); r < 8; r++ {
		require.Equal(t, before[r].Recvs, after[r].Recvs)
	}
	for r := range stepvan.Rank(4) {
		var kept Ops
		for i := range after[r].Sends.Len() {
			if op := after[r].Sends.At(i); op.Peer == 6 || op.Peer == 7 {
				kept.add(&op)
			}
		}
		require.Equal(t, before[r].Sends.Len(), kept.Len())
		for i := range kept.Len() {
			was, is := before[r].Sends.At(i), kept.At(i)
			require.Equal(t, before[r].Sources[was.Tensor], after[r].Sources[is.Tensor])
			was.Tensor, is.Tensor = 0, 0
			require.Equal(t, was, is)
		}
	}
}

// TestOrderOfRosters has no influence.
func TestOrderOfRosters(t *testing.T) {
	w := newWorld(t, model{tp: 2, ep: 1, pp: 1, copies: 2}, model{first: 4, tp: 4, ep: 1, pp: 1, copies: 1}, transformer()...)
	a, err := NewPlanner(w.rosters, Options{})
	require.NoError(t, err)
	for i := range len(w.rosters) / 2 {
		k := len(w.rosters) - 1 - i
		w.rosters[i], w.rosters[k] = w.rosters[k], w.rosters[i]
	}
	b, err := NewPlanner(w.rosters, Options{})
	require.NoError(t, err)
	for r := range stepvan.Rank(len(w.rosters)) {
		x, err := a.Plan(r)
		require.NoError(t, err)
		y, err := b.Plan(r)
		require.NoError(t, err)
		require.Equal(t, x.Append(nil), y.Append(nil))
	}
}

// TestTiedOutput gives a destination with a matrix of its own for the output what a source has for both.
func TestTiedOutput(t *testing.T) {
	for _, embedding := range []string{"embedding.word_embeddings.weight", "word_embeddings.weight"} {
		w := newWorld(t, model{tp: 2, ep: 1, pp: 1, copies: 1}, model{first: 2, tp: 1, ep: 1, pp: 1, copies: 1}, weight{name: embedding, shape: []int64{8, 2}, split: true})
		h := w.wants[2][0]
		h.Name = "output_layer.weight"
		w.wants[2] = append(w.wants[2], h)
		w.rosters[2] = w.roster(2)
		plans := w.run(Options{})
		require.Equal(t, 4, plans[2].Recvs.Len())
		require.Equal(t, 1, len(plans[0].Sources))
		require.Equal(t, embedding, plans[0].Sources[0].Name)
	}
}

// TestUnevenShards moves lengths that do not divide, and shards that are empty.
func TestUnevenShards(t *testing.T) {
	for _, n := range []int64{1, 3, 5, 7, 12} {
		for _, x := range [][2]int{{4, 3}, {3, 4}, {1, 4}, {4, 1}, {5, 4}} {
			w := weight{name: "w", shape: []int64{n, 2}, split: true}
			newWorld(t, model{tp: x[0], ep: 1, pp: 1, copies: 1}, model{first: x[0], tp: x[1], ep: 1, pp: 1, copies: 2}, w).run(Options{})
		}
	}
}

// TestOneSideDivides replicates a parameter on one side, whatever group the ranks there have.
func TestOneSideDivides(t *testing.T) {
	src, dst := model{tp: 2, ep: 1, pp: 1, copies: 1}, model{first: 2, tp: 3, ep: 1, pp: 1, copies: 1}
	w := newWorld(t, src, dst, weight{name: "w", shape: []int64{6}})
	other := newWorld(t, src, dst, weight{name: "w", shape: []int64{6}, split: true})
	for r := range stepvan.Rank(2) {
		w.sources[r], w.rosters[r] = other.sources[r], other.rosters[r]
	}
	w.run(Options{})
}

// TestCasts has buffers whose type differs between the sides.
func TestCasts(t *testing.T) {
	src, dst := model{tp: 1, ep: 1, pp: 1, copies: 1}, model{first: 1, tp: 1, ep: 1, pp: 1, copies: 1}
	for _, x := range []struct {
		buffer, cast bool
		ok           bool
	}{{true, false, true}, {false, true, true}, {false, false, false}} {
		w := newWorld(t, src, dst, weight{name: "router.expert_bias", shape: []int64{4}, buffer: x.buffer})
		w.wants[1][0].DType = tensor.BFloat16
		w.rosters[1] = w.roster(1)
		if x.ok {
			plan := w.run(Options{Cast: x.cast})[1]
			require.Equal(t, tensor.BFloat16, plan.Destinations[0].DType)
			require.Equal(t, tensor.Float32, plan.Destinations[0].Wire)
			continue
		}
		_, err := NewPlanner(w.rosters, Options{})
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, `type mismatch (got float32 at the source, bfloat16 at the destination)`)
		require.ErrorContains(t, err, `parameter "router.expert_bias" for rank 1`)
	}
}

// TestBatches keeps all slices of a parameter in one batch, and the bytes of every rank and batch below the limit.
func TestBatches(t *testing.T) {
	w := newWorld(t, model{tp: 2, ep: 1, pp: 2, copies: 1}, model{first: 4, tp: 1, ep: 2, pp: 1, copies: 2}, transformer()...)
	require.Equal(t, 1, w.run(Options{})[0].Batches)
	const limit = 1000
	plans := w.run(Options{BatchBytes: limit})
	batches := plans[0].Batches
	require.Greater(t, batches, 4)
	require.Less(t, batches, 60)
	of := map[string]int{}
	for _, plan := range plans {
		require.Equal(t, batches, plan.Batches)
		bytes, count := make([]int64, batches), make([]map[int]bool, batches)
		for i := range plan.Recvs.Len() {
			op := plan.Recvs.At(i)
			n := int64(4)
			for _, extent := range op.Extent[:op.Rank] {
				n *= extent
			}
			bytes[op.Batch] += n
			if count[op.Batch] == nil {
				count[op.Batch] = map[int]bool{}
			}
			count[op.Batch][op.Tensor] = true
			name := plan.Destinations[op.Tensor].Resolved
			if known, ok := of[name]; ok {
				require.Equal(t, known, op.Batch, name)
			}
			of[name] = op.Batch
		}
		for i, n := range bytes {
			require.True(t, n <= limit || len(count[i]) == 1, "%d bytes in batch %d", n, i)
		}
	}
}
