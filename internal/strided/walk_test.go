package strided

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/race"
)

// view is one side of a walk in a test.
type view struct {
	mem     []byte
	offset  int64
	strides []int64 // bytes
}

// newView lays a shape out in memory: its dimensions in some order, with gaps, and some repeated in place.
func newView(r *rand.Rand, size int64, shape []int64, repeats bool) (v view) {
	v.strides = make([]int64, len(shape))
	v.offset = int64(r.IntN(5))
	end := size
	for _, i := range r.Perm(len(shape)) {
		if repeats && r.IntN(4) == 0 {
			continue // stride 0
		}
		v.strides[i] = end
		if r.IntN(3) == 0 {
			v.strides[i] += int64(r.IntN(20))
		}
		end = v.strides[i] * shape[i]
	}
	v.mem = make([]byte, v.offset+end+int64(r.IntN(9)))
	return v
}

func (v *view) first() unsafe.Pointer {
	return unsafe.Pointer(unsafe.SliceData(v.mem[v.offset:]))
}

// each calls f with the offset of each element.
func each(shape []int64, f func(index []int64)) {
	index := make([]int64, len(shape))
	for {
		f(index)
		i := len(shape) - 1
		for ; i >= 0; i-- {
			if index[i]++; index[i] < shape[i] {
				break
			}
			index[i] = 0
		}
		if i < 0 {
			return
		}
	}
}

func (v *view) at(index []int64) int64 {
	n := v.offset
	for i, x := range index {
		n += x * v.strides[i]
	}
	return n
}

func walkOf(size int64, shape []int64, to, from view) Walk {
	dims := make([]Dim, len(shape))
	for i := range shape {
		dims[i] = Dim{shape[i], to.strides[i], from.strides[i]}
	}
	return New(size, dims...)
}

func elements(shape []int64) int64 {
	n := int64(1)
	for _, x := range shape {
		n *= x
	}
	return n
}

// Any two layouts of a shape: each element is where it belongs, and nothing else of the destination has changed.
func TestCopyBetweenAnyLayouts(t *testing.T) {
	for seed := range race.Fewer(uint64(1000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		size := []int64{1, 2, 4, 8, 16, 32, 3, 12}[r.IntN(8)]
		shape := make([]int64, r.IntN(MaxRank+1))
		for i := range shape {
			shape[i] = 1 + int64(r.IntN(6))
			if len(shape) < 4 && r.IntN(3) == 0 {
				shape[i] *= 20
			}
		}
		to, from := newView(r, size, shape, false), newView(r, size, shape, true)
		for i := range from.mem {
			from.mem[i] = byte(r.Uint32())
		}
		for i := range to.mem {
			to.mem[i] = byte(r.Uint32())
		}
		want := append([]byte(nil), to.mem...)
		each(shape, func(index []int64) {
			copy(want[to.at(index):][:size], from.mem[from.at(index):][:size])
		})
		w := walkOf(size, shape, to, from)
		require.Equal(t, elements(shape)*size, w.Bytes())
		w.Copy(to.first(), from.first())
		require.Equal(t, want, to.mem, "seed %d: size %d shape %v from %v to %v", seed, size, shape, from.strides, to.strides)
	}
}

func TestRunsAreAsLongAsCanBe(t *testing.T) {
	for name, c := range map[string]struct {
		dims      []Dim
		run, runs int64
	}{
		"a scalar":                           {nil, 2, 1},
		"contiguous":                         {[]Dim{{3, 80, 80}, {4, 20, 20}, {10, 2, 2}}, 240, 1},
		"a part of the rows":                 {[]Dim{{3, 80, 160}, {40, 2, 2}}, 80, 3},
		"rows that are contiguous in one":    {[]Dim{{5, 40, 60}, {2, 20, 20}, {10, 2, 2}}, 40, 5},
		"a transpose":                        {[]Dim{{3, 8, 2}, {4, 2, 6}}, 2, 12},
		"a transpose of a whole":             {[]Dim{{3, 2, 8}, {4, 6, 2}}, 2, 12},
		"the same transpose of both":         {[]Dim{{3, 2, 2}, {4, 6, 6}}, 24, 1},
		"one dimension, repeated":            {[]Dim{{3, 8, 0}, {4, 2, 2}}, 8, 3},
		"dimensions of one element":          {[]Dim{{1, 5, 9}, {6, 2, 2}, {1, 100, 3}}, 12, 1},
		"no elements":                        {[]Dim{{3, 8, 8}, {0, 2, 2}}, 0, 0},
		"two loops of the same steps joined": {[]Dim{{3, 40, 60}, {2, 20, 30}, {5, 4, 6}}, 2, 30},
	} {
		w := New(2, c.dims...)
		require.Equal(t, [2]int64{c.run, c.runs}, [2]int64{w.Run(), w.Runs()}, name)
	}
	w := New(2, Dim{3, 40, 60}, Dim{2, 20, 30}, Dim{5, 4, 6})
	require.Equal(t, 1, w.rank)
}

func TestNothingIsCopiedOfNothing(t *testing.T) {
	var w Walk
	w.Copy(nil, nil)
	require.Zero(t, w.Bytes())
}

func TestCopyAllocatesNothing(t *testing.T) {
	to, from := make([]byte, 1<<16), make([]byte, 1<<16)
	for _, dims := range [][]Dim{
		{{64, 128, 256}, {64, 2, 2}},
		{{16, 2, 256}, {16, 32, 2}},
		{{4, 4096, 1024}, {4, 2, 256}, {4, 256, 8}},
	} {
		require.Zero(t, testing.AllocsPerRun(10, func() {
			w := New(2, dims...)
			w.Copy(unsafe.Pointer(&to[0]), unsafe.Pointer(&from[0]))
		}))
	}
}

// Each is compared with one copy of as many bytes.
func BenchmarkCopy(b *testing.B) {
	const bytes = 16 << 20
	to, from := make([]byte, 2*bytes), make([]byte, 2*bytes)
	b.Run("whole", func(b *testing.B) {
		b.SetBytes(bytes)
		for b.Loop() {
			copy(to[:bytes], from[:bytes])
		}
	})
	for _, run := range []int64{8, 16, 32, 48, 64, 128, 256, 512, 1024, 4096} {
		b.Run(fmt.Sprint("rows of ", run), func(b *testing.B) {
			w := New(2, Dim{bytes / run, run, 2 * run}, Dim{run / 2, 2, 2})
			b.SetBytes(bytes)
			for b.Loop() {
				w.Copy(unsafe.Pointer(&to[0]), unsafe.Pointer(&from[0]))
			}
		})
	}
	for _, size := range []int64{2, 4, 8} {
		b.Run(fmt.Sprint("transpose of ", size), func(b *testing.B) {
			const rows = 2048
			columns := bytes / rows / size
			w := New(size, Dim{rows, size, columns * size}, Dim{columns, rows * size, size})
			b.SetBytes(bytes)
			for b.Loop() {
				w.Copy(unsafe.Pointer(&to[0]), unsafe.Pointer(&from[0]))
			}
		})
	}
}

func BenchmarkSmall(b *testing.B) {
	to, from := make([]byte, 4096), make([]byte, 4096)
	for name, dims := range map[string][]Dim{"one": {{4, 2, 2}}, "rows": {{4, 64, 128}, {8, 2, 2}}, "boxes": {{4, 512, 512}, {4, 64, 128}, {8, 2, 2}}} {
		w := New(2, dims...)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				w.Copy(unsafe.Pointer(&to[0]), unsafe.Pointer(&from[0]))
			}
		})
	}
}
