package cast

import "unsafe"

// Merge says what becomes of an element of the destination.
type Merge uint8

// These are the merges. The numbers mean nothing outside of a process.
const (
	Overwrite Merge = iota // the element of the source takes its place
	Sum
	Product
	Max
	Min
	mergeEnd
)

var mergeNames = [mergeEnd]string{"overwrite", "sum", "product", "max", "min"}

// String returns the name of the merge.
func (m Merge) String() string {
	if m >= mergeEnd {
		return "no merge"
	}
	return mergeNames[m]
}

// number is a type that Go computes with.
type number interface {
	uint8 | uint16 | uint32 | uint64 | int8 | int16 | int32 | int64 | float32 | float64
}

func merges[T number]() [mergeEnd]loop {
	return [mergeEnd]loop{Sum: sum[T], Product: product[T], Max: maximum[T], Min: minimum[T]}
}

func sum[T number](to, from unsafe.Pointer, n int) {
	x, y := sides[T, T](to, from, n)
	for i, v := range y {
		x[i] += v
	}
}

func sumBFloat16(to, from unsafe.Pointer, n int) {
	x, y := sides[uint16, uint16](to, from, n)
	for i, v := range y {
		x[i] = bfloat16Of(ofBFloat16(x[i]) + ofBFloat16(v))
	}
}

func product[T number](to, from unsafe.Pointer, n int) {
	x, y := sides[T, T](to, from, n)
	for i, v := range y {
		x[i] *= v
	}
}

func isNaN[T number](v T) bool { return v != v } //nolint:gocritic // it is what a NaN differs in

// maximum takes the destination where both are equal, and a NaN where there is one.
func maximum[T number](to, from unsafe.Pointer, n int) {
	x, y := sides[T, T](to, from, n)
	for i, v := range y {
		if v > x[i] || isNaN(v) {
			x[i] = v
		}
	}
}

func minimum[T number](to, from unsafe.Pointer, n int) {
	x, y := sides[T, T](to, from, n)
	for i, v := range y {
		if v < x[i] || isNaN(v) {
			x[i] = v
		}
	}
}

// or is for bytes, of which any but 0 is true: a peer may have written them.
func or(to, from unsafe.Pointer, n int) {
	x, y := sides[byte, byte](to, from, n)
	for i, v := range y {
		x[i] = truth(x[i] | v)
	}
}

func and(to, from unsafe.Pointer, n int) {
	x, y := sides[byte, byte](to, from, n)
	for i, v := range y {
		x[i] = truth(x[i]) & truth(v)
	}
}

// truth is 1 for any byte but 0.
func truth(b byte) byte { return (b | -b) >> 7 }

// quotient divides by a number.
func quotient[T float32 | float64](by T) loop {
	return func(to, from unsafe.Pointer, n int) {
		x, y := sides[T, T](to, from, n)
		for i, v := range y {
			x[i] = v / by
		}
	}
}
