package mx

import (
	"math"
	"sync"
	"unsafe"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Block is how many elements share a scale.
const Block = 32

// Largest is the largest value of an element.
const Largest = 448

// nan is the scale of a block without a value.
const nan = 255

// Quantize writes the elements of a matrix to data, and its scales to scale. The matrix is of float32 or bfloat16, with
// a multiple of [Block] columns. Its elements go to a float8_e4m3fn of the same shape. The scales go to a
// float8_e8m0fnu, in one of the two layouts. Budget: 0 allocations.
func Quantize(data, scale, from *tensor.Tensor) error {
	m, err := matrixOf(data, scale, from)
	if err != nil {
		return err
	}
	if m.swizzled {
		clear(m.scales) // also those of no block
	}
	l := best().quantize[m.kind]
	if !m.swizzled {
		m.each(func(at, n int) { m.run(l, m.scales[at:], at, n) })
		return nil
	}
	b := lists.Get().(*list)
	m.each(func(at, n int) {
		m.run(l, b[:], at, n)
		m.eachRun(at, n, func(list, first, end int) { copy(m.scales[list:], b[first:end]) })
	})
	lists.Put(b)
	return nil
}

// Dequantize writes the values of a quantized matrix to a matrix of float32 or bfloat16. The rules of [Quantize] hold.
func Dequantize(to, data, scale *tensor.Tensor) error {
	m, err := matrixOf(data, scale, to)
	if err != nil {
		return err
	}
	l := best().dequantize[m.kind]
	if !m.swizzled {
		m.each(func(at, n int) { m.run(l, m.scales[at:], at, n) })
		return nil
	}
	b := lists.Get().(*list)
	m.each(func(at, n int) {
		m.eachRun(at, n, func(list, first, end int) { copy(b[first:end], m.scales[list:]) })
		m.run(l, b[:], at, n)
	})
	lists.Put(b)
	return nil
}

// matrix is what is quantized: the values, and the codes.
type matrix struct {
	rows, blocks int // blocks of a row
	kind         kind
	values       []byte
	data, scales []byte
	swizzled     bool
}

// most is how many blocks a loop works on at a time: Go's runtime cannot stop a goroutine in assembly.
const most = 2048

// list has the scales of blocks that follow one another.
type list [most]byte

var lists = sync.Pool{New: func() any { return new(list) }}

// each calls f for pieces of the matrix: the first block of a piece, and how many blocks it has.
func (m *matrix) each(f func(at, n int)) {
	for at, end := 0, m.rows*m.blocks; at < end; at += most {
		f(at, min(most, end-at))
	}
}

// run works on n blocks. Their scales follow one another.
func (m *matrix) run(l loop, scales []byte, at, n int) {
	l(unsafe.Pointer(&m.values[at*Block*m.kind.bytes()]), unsafe.Pointer(&m.data[at*Block]), unsafe.Pointer(&scales[0]), n)
}

func matrixOf(data, scale, other *tensor.Tensor) (m matrix, err error) {
	for _, t := range []*tensor.Tensor{data, scale, other} {
		if err := t.CheckHost(); err != nil {
			return m, err
		}
	}
	shape := other.Shape()
	rows, columns := int(shape.Dim(0)), int(shape.Dim(1))
	switch d := other.DType(); {
	case shape.Rank() != 2:
		return m, errs.Invalid("%s is not a matrix; give 2 dimensions", *other)
	case columns%Block != 0:
		return m, errs.Invalid("%s has %d columns (want a multiple of %d, the block that shares a scale)", *other, columns, Block)
	case d != tensor.Float32 && d != tensor.BFloat16:
		return m, errs.Invalid("%s is not quantized; give float32 or bfloat16", *other)
	case data.DType() != tensor.Float8E4M3FN || data.Shape() != shape:
		return m, errs.Invalid("the elements are %s (want float8_e4m3fn%s)", *data, shape)
	case scale.DType() != tensor.Float8E8M0FNU:
		return m, errs.Invalid("the scales are %s (want float8_e8m0fnu)", *scale)
	}
	m = matrix{rows: rows, blocks: columns / Block, data: data.Bytes(), scales: scale.Bytes()}
	m.values = other.Bytes()
	if other.DType() == tensor.BFloat16 {
		m.kind = bfloat16s
	}
	matrixShape, list := tensor.ShapeOf(int64(rows), int64(m.blocks)), tensor.ShapeOf(SwizzledBytes(shape.Dim(0), shape.Dim(1)))
	switch scale.Shape() {
	case matrixShape:
	case list:
		m.swizzled = true
	default:
		return m, errs.Invalid("the scales are %s (want the shape %s, or %s for tensor cores)", *scale, matrixShape, list)
	}
	return m, nil
}

// quantize writes the codes of a block, and returns its scale.
func quantize(to *[Block]byte, from *[Block]float32) (scale byte) {
	largest := uint32(0)
	for _, x := range from {
		largest = max(largest, math.Float32bits(x)&^signBit)
	}
	if largest >= infinity {
		for i, x := range from {
			to[i] = 0
			if math.Float32bits(x)&^signBit >= infinity {
				to[i] = notANumber
			}
		}
		return nan
	}
	// The exponent of the next power of two, or of the number itself if it is one.
	scale = byte((math.Float32bits(math.Float32frombits(largest)/Largest) + 0x7f_ffff) >> 23)
	factor := math.Float32frombits((254 - uint32(scale)) << 23) // 2^(127-scale)
	for i, x := range from {
		to[i] = encode(x * factor)
	}
	return scale
}

const (
	signBit    = 1 << 31
	infinity   = 0x7f80_0000
	notANumber = 0x7f // of float8_e4m3fn
)

// encode rounds a number of at most 448 to the nearest float8_e4m3fn, ties to even.
func encode(x float32) byte {
	u := math.Float32bits(x)
	sign := byte(u>>24) & 0x80
	u &^= signBit
	if u < leastNormal {
		// The sum rounds to multiples of the least element, and has their number in its lowest bits.
		return sign | byte(math.Float32bits(math.Float32frombits(u)+1<<14))
	}
	u += 0x7_ffff + u>>20&1
	return sign | byte(u>>20-(127-7)<<3)
}

// leastNormal is 2^-6, below which elements lie as far apart as above it.
const leastNormal = (127 - 6) << 23

// elementValues are the values of all codes.
var elementValues = func() (all [256]float64) {
	for code := range all {
		exponent, fraction := code>>3&15, float64(code&7)/8
		v := math.Ldexp(1+fraction, exponent-7)
		if exponent == 0 {
			v = math.Ldexp(fraction, -6)
		}
		if code&notANumber == notANumber {
			v = math.NaN()
		}
		if code&0x80 != 0 {
			v = -v
		}
		all[code] = v
	}
	return all
}()

func scaleValue(code byte) float64 {
	if code == nan {
		return math.NaN()
	}
	return math.Ldexp(1, int(code)-127)
}

// dequantize writes the values of a block.
func dequantize(to *[Block]float32, from *[Block]byte, scale byte) {
	factor := scaleValue(scale)
	for i, code := range from {
		to[i] = float32(elementValues[code] * factor)
		if to[i] != to[i] { // which bits a product of NaNs has depends on the processor
			to[i] = quietNaN
		}
	}
}

var quietNaN = math.Float32frombits(0x7fc0_0000)
