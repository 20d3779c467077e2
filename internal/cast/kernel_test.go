package cast

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/tensor"
)

var floats = []tensor.DType{
	tensor.Float64, tensor.Float32, tensor.Float16, tensor.BFloat16, tensor.Float8E4M3FN, tensor.Float8E5M2,
}

// encoded are the bits of a number in a type of floats.
func encoded(d tensor.DType, x float64) uint64 {
	switch d {
	case tensor.Float64:
		return math.Float64bits(x)
	case tensor.Float32:
		return uint64(math.Float32bits(float32(x)))
	case tensor.Float16:
		return uint64(float16Of(float32(x)))
	case tensor.BFloat16:
		return uint64(bfloat16Of(float32(x)))
	case tensor.Float8E4M3FN:
		return uint64(e4m3fnOf(float32(x)))
	}
	return uint64(e5m2Of(float32(x)))
}

// merged is what a merge makes of two numbers in a type that computes.
func merged(m Merge, x, y float64, wide bool) float64 {
	switch m {
	case Sum:
		if wide {
			return x + y
		}
		return float64(float32(x) + float32(y))
	case Product:
		if wide {
			return x * y
		}
		return float64(float32(x) * float32(y))
	case Max:
		return math.Max(x, y)
	case Min:
		return math.Min(x, y)
	}
	return y
}

// Each pair of types and each merge, in any number of elements, one by one.
func TestEachKernel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for _, to := range floats {
		for _, from := range floats {
			for m := range mergeEnd {
				n := []int{1, 17, block - 1, block + 5, 3 * block}[r.IntN(5)]
				var x, y []byte
				for range n {
					x, y = appendElement(x, to, encoded(to, r.NormFloat64()*8)), appendElement(y, from, encoded(from, r.NormFloat64()*8))
				}
				want := append([]byte(nil), x...)
				k, err := New(to, from, m)
				require.NoError(t, err)
				k.Run(first(x), first(y), n)
				wide := to == tensor.Float64 || from == tensor.Float64
				for i := range n {
					a, b := valueOf(to, bitsOf(want, to, i)), valueOf(from, bitsOf(y, from, i))
					z := encoded(to, merged(m, a, b, wide))
					if got := bitsOf(x, to, i); got != z {
						t.Fatalf("%s of %s %g into %s %g: got %#x, want %#x", m, from, b, to, a, got, z)
					}
				}
			}
		}
	}
}

func TestKernelsThatThereAreNot(t *testing.T) {
	for _, c := range []struct {
		to, from tensor.DType
		m        Merge
	}{
		{tensor.Int32, tensor.Float32, Overwrite},
		{tensor.Int32, tensor.Int64, Sum},
		{tensor.Complex64, tensor.Complex64, Sum},
		{tensor.Float8E8M0FNU, tensor.Float32, Overwrite},
		{tensor.Float32, tensor.Float32, mergeEnd},
		{0, 0, Overwrite},
		{200, tensor.Float32, Overwrite},
	} {
		_, err := New(c.to, c.from, c.m)
		require.ErrorIs(t, err, stepvan.ErrInvalid, "%s %s %s", c.to, c.from, c.m)
	}
	_, err := NewDivision(tensor.Int32, 2)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, err = NewDivision(tensor.Float32, 0)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	var none Kernel
	none.Run(nil, nil, 3)
}

// Any type overwrites itself, bit by bit: also a NaN that signals.
func TestElementsAreCopiedAsTheyAre(t *testing.T) {
	for d := tensor.DType(1); d.Valid(); d++ {
		k, err := New(d, d, Overwrite)
		require.NoError(t, err)
		x, y := make([]byte, 100*d.Size()), make([]byte, 100*d.Size())
		for i := range y {
			y[i] = byte(0xff - i%7)
		}
		k.Run(first(x), first(y), 100)
		require.Equal(t, y, x)
	}
}

// A peer may have written any byte for a boolean.
func TestBooleans(t *testing.T) {
	x, y := []byte{0, 0, 1, 1, 0, 2, 0x80, 0xff}, []byte{0, 1, 0, 1, 4, 0, 1, 0x80}
	for m, want := range map[Merge][]byte{
		Sum: {0, 1, 1, 1, 1, 1, 1, 1}, Max: {0, 1, 1, 1, 1, 1, 1, 1},
		Product: {0, 0, 0, 1, 0, 0, 1, 1}, Min: {0, 0, 0, 1, 0, 0, 1, 1},
	} {
		k, err := New(tensor.Bool, tensor.Bool, m)
		require.NoError(t, err)
		got := append([]byte(nil), x...)
		k.Run(first(got), first(y), len(y))
		require.Equal(t, want, got, m)
	}
}

func TestMergesAllocateNothing(t *testing.T) {
	x, y := make([]byte, 1<<16), make([]byte, 1<<16)
	for _, to := range floats {
		for _, from := range floats {
			k, err := New(to, from, Sum)
			require.NoError(t, err)
			allocations := testing.AllocsPerRun(10, func() { k.Run(first(x), first(y), 5000) })
			if !race.Enabled {
				require.Zero(t, allocations, "%s %s", to, from)
			}
		}
	}
}
