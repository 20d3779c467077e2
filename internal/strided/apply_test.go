package strided

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/race"
)

// number is an element of any size in little endian.
func number(b []byte) (x uint64) {
	var all [8]byte
	copy(all[:], b)
	return binary.LittleEndian.Uint64(all[:])
}

func setNumber(b []byte, x uint64) {
	var all [8]byte
	binary.LittleEndian.PutUint64(all[:], x)
	copy(b, all[:])
}

// mix is what the step of a test does: 3 times the source, and the destination with reads.
func mix(old, source uint64, reads bool) uint64 {
	if reads {
		return old + 3*source
	}
	return 3 * source
}

func mixStep(to, from int64, reads bool, most *int) func(a, b unsafe.Pointer, n int) {
	return func(a, b unsafe.Pointer, n int) {
		*most = max(*most, n)
		x, y := unsafe.Slice((*byte)(a), int64(n)*to), unsafe.Slice((*byte)(b), int64(n)*from)
		for i := range int64(n) {
			setNumber(x[i*to:][:to], mix(number(x[i*to:][:to]), number(y[i*from:][:from]), reads))
		}
	}
}

// Any two layouts of a shape, of elements of two sizes: each element is what the step makes of it, and nothing else of
// the destination has changed.
func TestApplyToAnyLayouts(t *testing.T) {
	for seed := range race.Fewer(uint64(1500)) {
		r := rand.New(rand.NewPCG(seed, 7))
		sizes := []int64{1, 2, 4, 8}
		a, b, reads := sizes[r.IntN(4)], sizes[r.IntN(4)], r.IntN(2) == 0
		shape := make([]int64, r.IntN(MaxRank+1))
		for i := range shape {
			shape[i] = 1 + int64(r.IntN(6))
			if len(shape) < 4 && r.IntN(3) == 0 {
				shape[i] *= 20
			}
		}
		to, from := newView(r, a, shape, false), newView(r, b, shape, true)
		dims := make([]Dim, len(shape))
		for i := range shape {
			dims[i] = Dim{shape[i], to.strides[i], from.strides[i]}
		}
		for i := range from.mem {
			from.mem[i] = byte(r.Uint32())
		}
		for i := range to.mem {
			to.mem[i] = byte(r.Uint32())
		}
		want := append([]byte(nil), to.mem...)
		each(shape, func(index []int64) {
			x, y := want[to.at(index):][:a], from.mem[from.at(index):][:b]
			setNumber(x, mix(number(x), number(y), reads))
		})
		w := Between(a, b, dims...)
		require.Equal(t, elements(shape)*a, w.Bytes())
		most := 0
		w.Apply(to.first(), from.first(), reads, mixStep(a, b, reads, &most))
		require.Equal(t, want, to.mem, "seed %d: sizes %d %d shape %v from %v to %v", seed, a, b, shape, from.strides, to.strides)
	}
}

// A step is called for many elements at a time, also where they lie apart on both sides.
func TestApplyBringsElementsTogether(t *testing.T) {
	to, from := make([]byte, 1<<20), make([]byte, 1<<20)
	for name, dims := range map[string][]Dim{
		"every second element": {{4096, 4, 8}},
		"a transpose":          {{128, 2, 512}, {128, 256, 4}},
		"narrow rows":          {{500, 40, 80}, {3, 2, 4}},
		"wide and flat":        {{3, 65536, 131072}, {500, 4, 8}},
	} {
		w, most := Between(2, 4, dims...), 0
		w.Apply(unsafe.Pointer(&to[0]), unsafe.Pointer(&from[0]), false, mixStep(2, 4, false, &most))
		require.GreaterOrEqual(t, most, 1000, name)
	}
	var none Walk
	none.Apply(nil, nil, true, nil)
}

func TestApplyAllocatesNothing(t *testing.T) {
	to, from := make([]byte, 1<<16), make([]byte, 1<<16)
	nothing := func(unsafe.Pointer, unsafe.Pointer, int) {}
	for _, dims := range [][]Dim{{{64, 128, 256}, {64, 2, 4}}, {{16, 2, 256}, {16, 32, 4}}} {
		w := Between(2, 4, dims...)
		allocations := testing.AllocsPerRun(10, func() { w.Apply(unsafe.Pointer(&to[0]), unsafe.Pointer(&from[0]), false, nothing) })
		if !race.Enabled {
			require.Zero(t, allocations)
		}
	}
}

// The step copies, so each is compared with the same walk without one.
func BenchmarkApply(b *testing.B) {
	const bytes = 16 << 20
	to, from := make([]byte, 2*bytes), make([]byte, 2*bytes)
	dims := map[string][]Dim{
		"transpose of 4": {{2048, 4, 8192}, {2048, 8192, 4}},
	}
	for _, run := range []int64{8, 32, 64, 128, 256, 1024} {
		dims[fmt.Sprint("rows of ", run)] = []Dim{{bytes / run, run, 2 * run}, {run / 4, 4, 4}}
	}
	for name, d := range dims {
		w := New(4, d...)
		b.Run(name+"/copy", func(b *testing.B) {
			b.SetBytes(bytes)
			for b.Loop() {
				w.Copy(unsafe.Pointer(&to[0]), unsafe.Pointer(&from[0]))
			}
		})
		b.Run(name+"/apply", func(b *testing.B) {
			b.SetBytes(bytes)
			for b.Loop() {
				w.Apply(unsafe.Pointer(&to[0]), unsafe.Pointer(&from[0]), false, func(to, from unsafe.Pointer, n int) {
					copy(unsafe.Slice((*byte)(to), 4*n), unsafe.Slice((*byte)(from), 4*n))
				})
			}
		})
	}
}
