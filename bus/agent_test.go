package bus

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/tensor"
)

// views makes a view of each slice. Shared ones lie in the memory of the agent.
func views(t testing.TB, s *job, shapes []tensor.Shape, values [][]float32, memory func(i int) *tensor.Allocator) (all []tensor.Strided) {
	t.Helper()
	for i := range values {
		var x tensor.Tensor
		var err error
		if memory == nil {
			x, err = tensor.FromSlice(values[i], shapes[i].Dims()...)
			if shapes[i].Rank() == 0 {
				x, err = x.View(shapes[i])
			}
			require.NoError(t, err)
		} else {
			x, err = memory(i).Empty(tensor.Float32, shapes[i].Dims()...)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, x.Region().Close()) })
			to, err := tensor.As[float32](x)
			require.NoError(t, err)
			copy(to, values[i])
			values[i] = to
		}
		all = append(all, x.Strided())
	}
	return all
}

// Each pair of layouts moves exactly, between agents of their own, with as many agents as ranks of the larger side, and
// with one agent for all.
func TestLayouts(t *testing.T) {
	for _, v := range vectors() {
		t.Run(v.String(), func(t *testing.T) {
			from, to := v.from.Mesh.Size(), v.to.Mesh.Size()
			for _, van := range []pairtest.Van{pairtest.Mem(), pairtest.OneSided()} {
				for _, agents := range []int{from + to, max(from, to), 1} {
					t.Run(fmt.Sprintf("%s/%d", van.Name, agents), func(t *testing.T) {
						x := newTown(t, van, agents, Options{})
						testLayouts(t, x, &v)
					})
				}
			}
		})
	}
}

func testLayouts(t *testing.T, x *town, v *vector) {
	n := len(x.agents)
	var at [2][]int
	for i := range v.from.Mesh.Size() {
		at[0] = append(at[0], i%n)
	}
	for i := range v.to.Mesh.Size() {
		at[1] = append(at[1], (i+n-v.to.Mesh.Size()%n)%n)
	}
	a, b := x.job(t, "training", &v.from, at[0]...), x.job(t, "inference", &v.to, at[1]...)
	openEverywhere(t, "weights", a, b)
	m := makeModel(t, v, 7)
	source := clone(m.from)
	own := func(where []int) func(i int) *tensor.Allocator {
		return func(i int) *tensor.Allocator { return x.peers[where[i]].Memory }
	}
	all := map[*job][]tensor.Strided{a: views(t, a, m.fromShapes, m.from, own(at[0])), b: views(t, b, m.toShapes, m.to, nil)}
	noErrors(t, registerAll(t, "step", "weights", all))
	for range 2 {
		for i := range m.to {
			clear(m.to[i])
		}
		noErrors(t, transferAll(t, "step", a, b))
		require.Equal(t, m.want, m.to)
		require.Equal(t, source, m.from, "no source changes")
	}
	cleanupAll(t, "step", a, b)
	x.nothingLeft(t)
}

func clone(all [][]float32) (out [][]float32) {
	for _, x := range all {
		out = append(out, append([]float32{}, x...))
	}
	return out
}
