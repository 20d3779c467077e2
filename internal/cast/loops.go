package cast

import (
	"unsafe"

	"github.com/stepvan/stepvan/tensor"
)

// loop works on n elements that follow one another on both sides. It converts them, or merges those of from into to.
// Both may be in one place, element by element. Neither need be aligned.
type loop func(to, from unsafe.Pointer, n int)

// types is the number of element types, and of their numbers.
const types = int(tensor.Float4E2M1FNX2) + 1

// loops are those that a processor has. nil: there is no such conversion or merge.
type loops struct {
	decode, encode     [types]loop // to and from float32
	decode64, encode64 [types]loop // to and from float64
	// The same past the caches: for a multiple of 32 elements, to addresses that are multiples of lineBytes.
	pastDecode, pastEncode [types]loop
	merge                  [types][mergeEnd]loop
}

// plain are the loops in Go. They say what is right.
func plain() *loops {
	l := new(loops)
	l.decode = [types]loop{
		tensor.Float64: convert[float32, float64], tensor.Float16: decodeFloat16, tensor.BFloat16: decodeBFloat16,
		tensor.Float8E4M3FN: decodeE4M3FN, tensor.Float8E5M2: decodeE5M2,
	}
	l.encode = [types]loop{
		tensor.Float64: convert[float64, float32], tensor.Float16: encodeFloat16, tensor.BFloat16: encodeBFloat16,
		tensor.Float8E4M3FN: encodeE4M3FN, tensor.Float8E5M2: encodeE5M2,
	}
	l.decode64 = [types]loop{
		tensor.Float32:      convert[float64, float32],
		tensor.Float16:      each(func(x uint16) float64 { return float64(ofFloat16(x)) }),
		tensor.BFloat16:     each(func(x uint16) float64 { return float64(ofBFloat16(x)) }),
		tensor.Float8E4M3FN: each(func(x uint8) float64 { return float64(e4m3fnValues[x]) }),
		tensor.Float8E5M2:   each(func(x uint8) float64 { return float64(e5m2Values[x]) }),
	}
	l.encode64 = [types]loop{
		tensor.Float32:      convert[float32, float64],
		tensor.Float16:      each(func(x float64) uint16 { return float16Of(float32(x)) }),
		tensor.BFloat16:     each(func(x float64) uint16 { return bfloat16Of(float32(x)) }),
		tensor.Float8E4M3FN: each(func(x float64) uint8 { return e4m3fnOf(float32(x)) }),
		tensor.Float8E5M2:   each(func(x float64) uint8 { return e5m2Of(float32(x)) }),
	}
	l.merge = [types][mergeEnd]loop{
		tensor.Bool:  {Sum: or, Product: and, Max: or, Min: and},
		tensor.Uint8: merges[uint8](), tensor.Uint16: merges[uint16](), tensor.Uint32: merges[uint32](), tensor.Uint64: merges[uint64](),
		tensor.Int8: merges[int8](), tensor.Int16: merges[int16](), tensor.Int32: merges[int32](), tensor.Int64: merges[int64](),
		tensor.Float32: merges[float32](), tensor.Float64: merges[float64](), tensor.BFloat16: {Sum: sumBFloat16},
	}
	return l
}

// sides are the elements of both sides.
func sides[T, F any](to, from unsafe.Pointer, n int) ([]T, []F) {
	x, y := unsafe.Slice((*T)(to), n), unsafe.Slice((*F)(from), n)
	return x[:n], y[:n]
}

func convert[T, F float32 | float64](to, from unsafe.Pointer, n int) {
	x, y := sides[T, F](to, from, n)
	for i, v := range y {
		x[i] = T(v)
	}
}

func each[T, F any](f func(F) T) loop {
	return func(to, from unsafe.Pointer, n int) {
		x, y := sides[T, F](to, from, n)
		for i, v := range y {
			x[i] = f(v)
		}
	}
}

func decodeFloat16(to, from unsafe.Pointer, n int) {
	x, y := sides[float32, uint16](to, from, n)
	for i, v := range y {
		x[i] = ofFloat16(v)
	}
}

// decodeBFloat16 moves bits, since a move of float32 may change those of a NaN.
func decodeBFloat16(to, from unsafe.Pointer, n int) {
	x, y := sides[uint32, uint16](to, from, n)
	for i, v := range y {
		x[i] = uint32(v) << 16
	}
}

func decodeE4M3FN(to, from unsafe.Pointer, n int) {
	x, y := sides[float32, uint8](to, from, n)
	for i, v := range y {
		x[i] = e4m3fnValues[v]
	}
}

func decodeE5M2(to, from unsafe.Pointer, n int) {
	x, y := sides[float32, uint8](to, from, n)
	for i, v := range y {
		x[i] = e5m2Values[v]
	}
}

func encodeFloat16(to, from unsafe.Pointer, n int) {
	x, y := sides[uint16, float32](to, from, n)
	for i, v := range y {
		x[i] = float16Of(v)
	}
}

func encodeBFloat16(to, from unsafe.Pointer, n int) {
	x, y := sides[uint16, float32](to, from, n)
	for i, v := range y {
		x[i] = bfloat16Of(v)
	}
}

func encodeE4M3FN(to, from unsafe.Pointer, n int) {
	x, y := sides[uint8, float32](to, from, n)
	for i, v := range y {
		x[i] = e4m3fnOf(v)
	}
}

func encodeE5M2(to, from unsafe.Pointer, n int) {
	x, y := sides[uint8, float32](to, from, n)
	for i, v := range y {
		x[i] = e5m2Of(v)
	}
}
