//go:build !race

package cast

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/tensor"
)

// sets are the loops in assembly that this processor has.
func sets() map[string]*loops {
	all := map[string]*loops{}
	if hasAVX2() {
		all["AVX2"] = plain()
		all["AVX2"].takeAVX2()
	}
	if hasAVX512() {
		all["AVX512"] = plain()
		all["AVX512"].takeAVX512()
	}
	return all
}

// eachLoop calls f with each conversion and merge of a set, and with that in Go.
func eachLoop(l *loops, f func(name string, to, from tensor.DType, assembly, plain loop)) {
	p := plain()
	for d := range tensor.DType(types) {
		if l.decode[d] != nil {
			f("decode "+d.String(), tensor.Float32, d, l.decode[d], p.decode[d])
		}
		if l.encode[d] != nil {
			f("encode "+d.String(), d, tensor.Float32, l.encode[d], p.encode[d])
		}
		for m := range mergeEnd {
			if l.merge[d][m] != nil && isFloat(d) {
				f(fmt.Sprintf("%s of %s", m, d), d, d, l.merge[d][m], p.merge[d][m])
			}
		}
	}
}

// sameElements compares bit by bit, but where sums and products of NaNs may have any bits.
func sameElements(d tensor.DType, a, b []byte, computed bool) bool {
	for i := range len(a) / d.Size() {
		x, y := bitsOf(a, d, i), bitsOf(b, d, i)
		if x != y && (!computed || !math.IsNaN(valueOf(d, x)) || !math.IsNaN(valueOf(d, y))) {
			return false
		}
	}
	return true
}

// The loops in assembly do what those in Go do, with any number of elements at any address, and touch nothing else.
func TestAssembly(t *testing.T) {
	for set, l := range sets() {
		eachLoop(l, func(name string, to, from tensor.DType, assembly, plain loop) {
			for seed := range race.Fewer(uint64(400)) {
				r := rand.New(rand.NewPCG(seed, 8))
				n := r.IntN(150)
				source, room := make([]byte, n*from.Size()+8), make([]byte, n*to.Size()+16)
				for _, b := range [][]byte{source, room} {
					for i := range b {
						b[i] = byte(r.Uint32())
					}
				}
				want := append([]byte(nil), room...)
				at, offset := r.IntN(8), r.IntN(8)
				assembly(unsafe.Pointer(&room[offset]), unsafe.Pointer(&source[at]), n)
				plain(unsafe.Pointer(&want[offset]), unsafe.Pointer(&source[at]), n)
				end := offset + n*to.Size()
				if !sameElements(to, want[offset:end], room[offset:end], to == from) {
					t.Fatalf("%s %s: %d elements at %d: got %x, want %x", set, name, n, offset, room[offset:end], want[offset:end])
				}
				require.Equal(t, want[:offset], room[:offset], "%s %s", set, name)
				require.Equal(t, want[end:], room[end:], "%s %s", set, name)
			}
		})
	}
}

// All elements of the small types, and those of float32 that round one way or the other.
func TestAssemblyOfAllElements(t *testing.T) {
	for set, l := range sets() {
		eachLoop(l, func(name string, to, from tensor.DType, assembly, plain loop) {
			source := elementsOf(from)
			n := len(source) / from.Size()
			if to == from {
				source, n = operandsOf(from, true), pairs
			}
			room := make([]byte, n*to.Size())
			if to == from {
				room = operandsOf(to, false)
			}
			want := append([]byte(nil), room...)
			assembly(first(room), first(source), n)
			plain(first(want), first(source), n)
			require.True(t, sameElements(to, want, room, to == from), "%s %s", set, name)
		})
	}
}

// Zeros, infinities and NaNs in each lane.
func TestAssemblyOfSpecialElements(t *testing.T) {
	special := []uint32{0, 1 << 31, infinity32, infinity32 | sign32, 0x7fc00001, 0xffc00002, 0x7f800003, 1, 0x3f800000}
	var x, y []byte
	for _, a := range special {
		for _, b := range special {
			x, y = appendElement(x, tensor.Float32, uint64(a)), appendElement(y, tensor.Float32, uint64(b))
		}
	}
	n := len(special) * len(special)
	p := plain()
	for set, l := range sets() {
		for m := Sum; m < mergeEnd; m++ {
			for shift := range 16 {
				got, want := append([]byte(nil), x...), append([]byte(nil), x...)
				l.merge[tensor.Float32][m](first(got[4*shift:]), first(y[4*shift:]), n-shift)
				p.merge[tensor.Float32][m](first(want[4*shift:]), first(y[4*shift:]), n-shift)
				require.True(t, sameElements(tensor.Float32, want, got, m == Sum || m == Product), "%s %s", set, m)
			}
		}
	}
}

// Past the caches, from any address to any address. An odd address of the destination has no whole lines.
func TestPastTheCaches(t *testing.T) {
	p := plain()
	for set, l := range sets() {
		for _, small := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
			for _, types := range [][2]tensor.DType{{small, tensor.Float32}, {tensor.Float32, small}} {
				to, from := types[0], types[1]
				k, err := l.kernel(to, from, Overwrite)
				require.NoError(t, err)
				require.NotNil(t, k.past)
				right, err := p.kernel(to, from, Overwrite)
				require.NoError(t, err)
				source := operandsOf(from, true)
				for seed := range race.Fewer(uint64(300)) {
					r := rand.New(rand.NewPCG(seed, 10))
					n, at, offset := r.IntN(1000), r.IntN(100), r.IntN(2*lineBytes)
					if seed == 0 {
						n = most + 1234
					}
					room := make([]byte, n*to.Size()+3*lineBytes)
					want := append([]byte(nil), room...)
					k.runPast(unsafe.Pointer(&room[offset]), unsafe.Pointer(&source[at]), n)
					right.run(nil, unsafe.Pointer(&want[offset]), unsafe.Pointer(&source[at]), n)
					require.True(t, string(want) == string(room), "%s %s to %s: %d elements at %d", set, from, to, n, offset)
				}
			}
		}
	}
}
