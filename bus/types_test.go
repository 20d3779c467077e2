package bus

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/cast"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// typed makes a contiguous view of a type that has these numbers, rounded to the type.
func typed(t testing.TB, d tensor.DType, values []float64, dims ...int64) (tensor.Tensor, tensor.Strided) {
	t.Helper()
	words := make([]byte, len(values)*d.Size())
	x, err := tensor.FromBytes(d, tensor.ShapeOf(dims...), words)
	require.NoError(t, err)
	from, err := tensor.FromSlice(values, dims...)
	require.NoError(t, err)
	a, b := x.Strided(), from.Strided()
	require.NoError(t, cast.Copy(&a, &b, cast.Overwrite))
	return x, a
}

// numbers are the elements of a view.
func numbers(t testing.TB, v tensor.Strided) []float64 {
	t.Helper()
	out := make([]float64, v.Len()/int64(v.DType().Size()))
	to, err := tensor.FromSlice(out, v.Dims()...)
	require.NoError(t, err)
	a := to.Strided()
	require.NoError(t, cast.Copy(&a, &v, cast.Overwrite))
	return out
}

func randoms(seed uint64, n int, scale float64) (all []float64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	for range n {
		all = append(all, scale*rng.NormFloat64())
	}
	return all
}

// Types change on the way as a cast of the whole changes them, and only the target changes.
func TestTypesOnTheWay(t *testing.T) {
	rows, columns := on([]int{1}, layout.Shard(0)), on([]int{1, 1}, layout.Replicate(), layout.Shard(1))
	for _, van := range []pairtest.Van{pairtest.Mem(), pairtest.OneSided(), pairtest.TCP()} {
		for _, types := range [][2]tensor.DType{
			{tensor.Float32, tensor.BFloat16}, {tensor.BFloat16, tensor.Float32}, {tensor.BFloat16, tensor.Float16},
			{tensor.Float16, tensor.BFloat16}, {tensor.Float32, tensor.Float8E4M3FN}, {tensor.Float64, tensor.Float16},
		} {
			for _, agents := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s %s to %s at %d", van.Name, types[0], types[1], agents), func(t *testing.T) {
					x := newTown(t, van, agents, Options{})
					a, b := x.job(t, "training", &rows, 0), x.job(t, "inference", &columns, agents-1)
					openEverywhere(t, "p", a, b)
					master, from := typed(t, types[0], randoms(1, 32, 3), 8, 4)
					copied, to := typed(t, types[1], randoms(2, 32, 3), 8, 4)
					before := append([]byte{}, master.Bytes()...)
					want, expected := typed(t, types[1], make([]float64, 32), 8, 4)
					require.NoError(t, cast.Copy(&expected, &from, cast.Overwrite))
					noErrors(t, registerAll(t, "step", "p", map[*job][]tensor.Strided{a: {from}, b: {to}}))
					noErrors(t, transferAll(t, "step", a, b))
					require.Equal(t, want.Bytes(), copied.Bytes())
					require.Equal(t, before, master.Bytes(), "the master is unchanged")
				})
			}
		}
	}
}

// Partial values are reduced in the type of the source, and cast afterwards.
func TestReductionsOfTypes(t *testing.T) {
	partial, whole := on([]int{2, 2}, layout.Partial(layout.Sum), layout.Partial(layout.Sum)), on([]int{2}, layout.Replicate())
	for _, c := range []struct {
		from, to             tensor.DType
		scale                float64
		relative, difference float64
	}{
		{tensor.Float32, tensor.Float32, 1, 1e-5, 1e-5},
		{tensor.Float16, tensor.Float16, 1, 5e-3, 5e-3},
		{tensor.BFloat16, tensor.BFloat16, 1, 5e-2, 5e-2},
		{tensor.Float32, tensor.BFloat16, 1e3, 1e-2, 1},
		{tensor.BFloat16, tensor.Float32, 1, 5e-2, 5e-2},
	} {
		for _, van := range []pairtest.Van{pairtest.Mem(), pairtest.OneSided()} {
			t.Run(fmt.Sprintf("%s to %s over %s", c.from, c.to, van.Name), func(t *testing.T) {
				x := newTown(t, van, 6, Options{})
				a, b := x.job(t, "training", &partial, 0, 1, 2, 3), x.job(t, "inference", &whole, 4, 5)
				openEverywhere(t, "p", a, b)
				const rows, columns = 17, 33
				all := map[*job][]tensor.Strided{}
				sums := make([]float64, rows*columns)
				var sources []tensor.Tensor
				var before [][]byte
				for i := range 4 {
					s, v := typed(t, c.from, randoms(uint64(i), rows*columns, c.scale), rows, columns)
					sources, before = append(sources, s), append(before, append([]byte{}, s.Bytes()...))
					all[a] = append(all[a], v)
					for k, n := range numbers(t, v) {
						sums[k] += n
					}
				}
				for range 2 {
					_, v := typed(t, c.to, make([]float64, rows*columns), rows, columns)
					all[b] = append(all[b], v)
				}
				noErrors(t, registerAll(t, "step", "p", all))
				noErrors(t, transferAll(t, "step", a, b))
				for _, v := range all[b] {
					for k, got := range numbers(t, v) {
						require.LessOrEqual(t, math.Abs(got-sums[k]), c.difference+c.relative*math.Abs(sums[k]), "element %d", k)
					}
				}
				for i, s := range sources {
					require.Equal(t, before[i], s.Bytes(), "no source changes")
				}
			})
		}
	}
}
