package layout

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// BenchmarkPlan plans all parameters of a large model for 64 destinations: the budget is 2 s and 200 B a move on one
// core. Each parameter is planned anew, although parameters of equal shape could share a plan.
func BenchmarkPlan(b *testing.B) {
	const parameters, targets = 50_000, 64
	shapes := []tensor.Shape{
		tensor.ShapeOf(4096, 2048), tensor.ShapeOf(2048, 4096), tensor.ShapeOf(6144, 4096), tensor.ShapeOf(4096, 8192),
	}
	trainer := on([]int{8, 8}, StridedShard(0, 8), Shard(0)) // FSDP2 over tensor parallelism
	for _, x := range []struct {
		name string
		keep bool // all moves, as a controller does; the ranks themselves keep their own
		plan func(*testing.B, int, *Moves)
	}{
		{"fsdp", true, func(b *testing.B, i int, out *Moves) {
			planLayouts(b, on([]int{64}, Shard(0)), on([]int{64}, Shard(0)), shapes[i%len(shapes)], out)
		}},
		{"fsdp-tp", false, func(b *testing.B, i int, out *Moves) { // to tensor parallelism in 8 copies
			planLayouts(b, trainer, on([]int{8, 8}, Replicate(), Shard(0)), shapes[i%len(shapes)], out)
		}},
		{"megatron", true, func(b *testing.B, i int, out *Moves) {
			planMegatron(b, Partition{Dim: i % 2, World: 8, Stride: 1 + i%2}, Partition{Dim: i % 2, World: 4, Stride: 1 + i%2}, shapes[i%len(shapes)], out)
		}},
	} {
		b.Run(x.name, func(b *testing.B) {
			b.ReportAllocs()
			moves, held := 0, 0
			for b.Loop() {
				kept := make([]Moves, parameters)
				var m Moves
				for i := range kept {
					m.Reset()
					x.plan(b, i, &m)
					if x.keep {
						kept[i] = m.Clone()
						held += 16*cap(kept[i].heads) + 8*cap(kept[i].boxes)
					}
					moves += m.Len()
				}
			}
			b.ReportMetric(float64(moves)/float64(b.N), "moves/op")
			b.ReportMetric(b.Elapsed().Seconds()/float64(moves)*1e9, "ns/move")
			b.ReportMetric(float64(held)/float64(moves), "held-B/move")
		})
	}
}

func planLayouts(b testing.TB, from, to Layout, shape tensor.Shape, out *Moves) {
	p, err := Redistribute(from, to, shape)
	require.NoError(b, err)
	for target := range to.Mesh.Size() {
		if err := p.Assign(target, from.Sources(target), out); err != nil {
			b.Fatal(err)
		}
	}
}

// groups are 64 ranks in tensor parallel groups of 8, with a data parallel group of 8 for each place.
var groups = func() *DataGroups {
	var all []Member
	for i := range stepvan.Rank(64) {
		m := Member{Rank: i}
		for k := range stepvan.Rank(8) {
			m.Tensor, m.Data = append(m.Tensor, i/8*8+k), append(m.Data, k*8+i%8)
		}
		all = append(all, m)
	}
	g, err := NewDataGroups(all)
	if err != nil {
		panic(err)
	}
	return g
}()

func planMegatron(b testing.TB, src, dst Partition, shape tensor.Shape, out *Moves) {
	from, err := src.Divide(shape)
	require.NoError(b, err)
	to, err := dst.Divide(shape)
	require.NoError(b, err)
	p, err := NewPlanner(from, to)
	require.NoError(b, err)
	for target := range 64 {
		sources, err := groups.Sources(&Member{Rank: stepvan.Rank(100 + target)}, &src)
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Assign(target%dst.Parts(), sources, out); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNoAllocations holds the paths that run once for each destination to their budget: no allocation.
func TestNoAllocations(t *testing.T) {
	from, to := on([]int{2, 4}, StridedShard(0, 4), Shard(0)), on([]int{2, 2}, Replicate(), Shard(1))
	shape := tensor.ShapeOf(64, 64)
	p, err := Redistribute(from, to, shape)
	require.NoError(t, err)
	a, err := from.Part(shape, 5)
	require.NoError(t, err)
	c, err := to.Part(shape, 3)
	require.NoError(t, err)
	var m Moves
	dst, src := &Member{Rank: 100}, &Partition{World: 8}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		m.Reset()
		if p.Assign(1, from.Sources(1), &m) != nil || m.Overlap(&a, &c, 5) != nil {
			t.Error("no plan")
		}
		if _, err := groups.Sources(dst, src); err != nil {
			t.Error(err)
		}
	}))
	require.Equal(t, 8+1, m.Len())
	kept := m.Clone()
	require.Equal(t, 64*m.Len(), int(unsafe.Sizeof(head{}))*len(kept.heads)+8*len(kept.boxes), "bytes of moves of a matrix")
}
