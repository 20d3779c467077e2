package model

import "unsafe"

// alignment in bytes of everything that is the second operand of a product.
const alignment = 64

// alignedFloats is make([]float32, n) at a 64-byte boundary (see the package
// comment for why results depend on it). The Go heap does not move memory.
func alignedFloats(n int) []float32 {
	const floats = alignment / 4
	raw := make([]float32, n+floats)
	skip := 0
	if rest := uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % alignment; rest != 0 {
		skip = int(alignment-rest) / 4
	}
	return raw[skip : skip+n : skip+n]
}
