package mx

import (
	"math"
	"sync"
	"unsafe"
)

// loop quantizes n blocks that follow one another, or turns them back into values. Each block has [Block] values, as
// many codes and one scale. Nothing need be aligned.
type loop func(values, codes, scales unsafe.Pointer, n int)

// kind is the type of the values.
type kind int

const (
	float32s kind = iota
	bfloat16s
	kinds
)

// bytes of a value.
func (k kind) bytes() int {
	if k == bfloat16s {
		return 2
	}
	return 4
}

// loops are those that a processor has, by the type of the values.
type loops struct{ quantize, dequantize [kinds]loop }

// best are the loops of this processor.
var best = sync.OnceValue(func() *loops {
	l := plain()
	l.accelerate()
	return l
})

// plain are the loops in Go. They say what is right.
func plain() *loops {
	return &loops{
		quantize:   [kinds]loop{quantizeFloat32, quantizeBFloat16},
		dequantize: [kinds]loop{dequantizeFloat32, dequantizeBFloat16},
	}
}

// blocks are n blocks of values, their codes and their scales.
func blocks[T float32 | uint16](values, codes, scales unsafe.Pointer, n int) ([][Block]T, [][Block]byte, []byte) {
	return unsafe.Slice((*[Block]T)(values), n), unsafe.Slice((*[Block]byte)(codes), n), unsafe.Slice((*byte)(scales), n)
}

func quantizeFloat32(values, codes, scales unsafe.Pointer, n int) {
	from, to, scale := blocks[float32](values, codes, scales, n)
	for i := range from {
		scale[i] = quantize(&to[i], &from[i])
	}
}

func quantizeBFloat16(values, codes, scales unsafe.Pointer, n int) {
	from, to, scale := blocks[uint16](values, codes, scales, n)
	for i := range from {
		var block [Block]float32
		for j, x := range from[i] {
			block[j] = math.Float32frombits(uint32(x) << 16)
		}
		scale[i] = quantize(&to[i], &block)
	}
}

func dequantizeFloat32(values, codes, scales unsafe.Pointer, n int) {
	to, from, scale := blocks[float32](values, codes, scales, n)
	for i := range to {
		dequantize(&to[i], &from[i], scale[i])
	}
}

// dequantizeBFloat16 rounds to the nearest bfloat16, ties to even.
func dequantizeBFloat16(values, codes, scales unsafe.Pointer, n int) {
	to, from, scale := blocks[uint16](values, codes, scales, n)
	for i := range to {
		var block [Block]float32
		dequantize(&block, &from[i], scale[i])
		for j, x := range block {
			u := math.Float32bits(x)
			if u&^signBit <= infinity {
				u += 0x7fff + u>>16&1
			}
			to[i][j] = uint16(u >> 16)
		}
	}
}
