//go:build !race

package mx

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
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

// fill writes the values of blocks. Each block has numbers around a magnitude of its own, and some have zeros,
// subnormals, infinities or NaNs among them.
func fill(r *rand.Rand, k kind, values []byte) {
	size := Block * k.bytes()
	for b := range len(values) / size {
		exponent, special := r.IntN(256), r.IntN(12)
		for i := range Block {
			u := uint32(max(0, min(254, exponent-r.IntN(20))))<<23 | r.Uint32()&(signBit|0x7f_ffff)
			switch {
			case special == 0:
				u &= signBit // zeros only
			case special == 1:
				u = r.Uint32() // any bits
			case special == 2:
				u &= signBit | 0x7f_ffff // subnormals
			case special == 3 && i == exponent%Block:
				u = infinity | u&signBit
			case special == 4 && i == exponent%Block:
				u |= infinity | 1<<20
			case special == 5: // around the limits of a scale
				u = uint32(int(math.Float32bits(Largest))+r.IntN(5)-2) - uint32(exponent%8)<<23
			case special == 6: // scales that round to zero
				u = uint32(r.IntN(230))
			case special == 7: // around the least normal element, and halfway between elements
				u = uint32(119+r.IntN(4))<<23 | uint32(r.IntN(16))<<19 | uint32(r.IntN(3))
				if i == 0 {
					u = math.Float32bits(Largest)
				}
			}
			put(k, values[b*size+i*k.bytes():], u)
		}
	}
}

func put(k kind, to []byte, u uint32) {
	if k == bfloat16s {
		to[0], to[1] = byte(u>>16), byte(u>>24)
		return
	}
	to[0], to[1], to[2], to[3] = byte(u), byte(u>>8), byte(u>>16), byte(u>>24)
}

// room is memory with noise around a part of it, at any address.
type room struct {
	all        []byte
	offset, at int
}

func (x *room) part() []byte { return x.all[x.offset:x.at] }

func (x *room) first() unsafe.Pointer { return unsafe.Pointer(&x.all[x.offset]) }

func roomFor(r *rand.Rand, n int) room {
	x := room{all: make([]byte, n+128), offset: r.IntN(64)}
	x.at = x.offset + n
	for i := range x.all {
		x.all[i] = byte(r.Uint32())
	}
	return x
}

func (x *room) clone() room { return room{bytes.Clone(x.all), x.offset, x.at} }

// The loops in assembly do what those in Go do, bit by bit, with any number of blocks at any address. They touch
// nothing else.
func TestAssembly(t *testing.T) {
	p := plain()
	for set, l := range sets() {
		for k := range kinds {
			for seed := range uint64(3000) {
				r := rand.New(rand.NewPCG(seed, uint64(k)))
				n := 1 + r.IntN(20)
				values, codes, scales := roomFor(r, n*Block*k.bytes()), roomFor(r, n*Block), roomFor(r, n)
				fill(r, k, values.part())
				given, wantCodes, wantScales := values.clone(), codes.clone(), scales.clone()
				l.quantize[k](values.first(), codes.first(), scales.first(), n)
				p.quantize[k](values.first(), wantCodes.first(), wantScales.first(), n)
				name := fmt.Sprintf("%s, type %d, seed %d", set, k, seed)
				require.Equal(t, wantScales.all, scales.all, name)
				require.Equal(t, wantCodes.all, codes.all, name)
				require.Equal(t, given.all, values.all, name)

				if seed%2 == 0 { // any codes and scales
					codes, scales = roomFor(r, n*Block), roomFor(r, n)
					wantCodes, wantScales = codes.clone(), scales.clone()
				}
				want := values.clone()
				l.dequantize[k](values.first(), codes.first(), scales.first(), n)
				p.dequantize[k](want.first(), codes.first(), scales.first(), n)
				require.Equal(t, want.all, values.all, name)
				require.Equal(t, wantCodes.all, codes.all, name)
				require.Equal(t, wantScales.all, scales.all, name)
			}
		}
	}
}

// Each bfloat16, with each magnitude of the largest element of its block.
func TestAssemblyOfAllValues(t *testing.T) {
	const n = 1 << 16 / (Block - 1)
	p := plain()
	for set, l := range sets() {
		for k := range kinds {
			values := make([]byte, n*Block*k.bytes())
			for largest := uint32(0); largest < 256; largest += 3 {
				for i := range n * Block {
					u := uint32(i-i/Block) << 16
					if i%Block == 0 {
						u = largest<<23 | largest<<15
					}
					if u&infinity > largest<<23 { // larger than the largest
						u &= signBit
					}
					put(k, values[i*k.bytes():], u)
				}
				var codes, want [n * Block]byte
				var scales, wantScales [n]byte
				l.quantize[k](unsafe.Pointer(&values[0]), unsafe.Pointer(&codes), unsafe.Pointer(&scales), n)
				p.quantize[k](unsafe.Pointer(&values[0]), unsafe.Pointer(&want), unsafe.Pointer(&wantScales), n)
				require.True(t, scales == wantScales, "%s, type %d, largest %d", set, k, largest)
				require.True(t, codes == want, "%s, type %d, largest %d", set, k, largest)
			}
		}
	}
}

// Each code with each scale.
func TestAssemblyOfAllCodes(t *testing.T) {
	const n = 8 * 256
	var codes [n * Block]byte
	var scales [n]byte
	for i := range codes {
		codes[i], scales[i/Block] = byte(i), byte(i/256)
	}
	p := plain()
	for set, l := range sets() {
		for k := range kinds {
			got, want := make([]byte, n*Block*k.bytes()), make([]byte, n*Block*k.bytes())
			l.dequantize[k](unsafe.Pointer(&got[0]), unsafe.Pointer(&codes), unsafe.Pointer(&scales), n)
			p.dequantize[k](unsafe.Pointer(&want[0]), unsafe.Pointer(&codes), unsafe.Pointer(&scales), n)
			require.True(t, bytes.Equal(want, got), "%s, type %d", set, k)
		}
	}
}
