package tensor

import (
	"math/bits"
	"strconv"

	"github.com/stepvan/stepvan/internal/errs"
)

// MaxRank is the largest number of dimensions of a tensor.
const MaxRank = 8

// invalidRank marks the result of ShapeOf for dimensions that make no shape.
const invalidRank = 0xff

// Shape has the extents of the dimensions of a tensor, outermost first. It is a comparable value without pointers. The
// zero value is the shape of a scalar, with rank 0 and one element. A valid shape has fewer than 2^63 elements.
type Shape struct {
	dims [MaxRank]int64 // zero beyond rank, so that == compares shapes
	rank uint8
}

// MakeShape makes a shape of at most [MaxRank] dimensions. No dimension may be negative. Otherwise the error is
// [stepvan.ErrInvalid].
func MakeShape(dims ...int64) (Shape, error) {
	s := ShapeOf(dims...)
	if s.Valid() {
		return s, nil
	}
	return s, shapeFault(dims)
}

// ShapeOf is [MakeShape] for literals. Where MakeShape fails, ShapeOf returns an invalid shape, which every function
// that makes a tensor refuses.
func ShapeOf(dims ...int64) Shape {
	if len(dims) > MaxRank {
		return Shape{rank: invalidRank}
	}
	s := Shape{rank: uint8(len(dims))}
	copy(s.dims[:], dims)
	if _, ok := s.count(); !ok {
		return Shape{rank: invalidRank}
	}
	return s
}

// SetDims makes s the shape of dims, without a copy of a Shape. Where [MakeShape] fails, ok is false and s is invalid.
// It is for stepvan itself.
func (s *Shape) SetDims(dims ...int64) (elems int64, ok bool) {
	*s = Shape{rank: invalidRank}
	if len(dims) == 1 && dims[0] >= 0 { // most are, and this is a third of the way below
		s.dims[0], s.rank = dims[0], 1
		return dims[0], true
	}
	if len(dims) > MaxRank {
		return 0, false
	}
	copy(s.dims[:], dims)
	s.rank = uint8(len(dims))
	if elems, ok = s.count(); !ok {
		*s = Shape{rank: invalidRank}
	}
	return elems, ok
}

// shapeFault says why dims make no shape. It copies them, so that the
// arguments of MakeShape stay on the caller's stack.
func shapeFault(dims []int64) error {
	if len(dims) > MaxRank {
		return errs.Invalid("a shape has at most %d dimensions, not %d; merge some", MaxRank, len(dims))
	}
	for i, d := range dims {
		if d < 0 {
			return errs.Invalid("dimension %d of a shape is %d; it must be 0 or more", i, d)
		}
	}
	return errs.Invalid("the shape has more elements than 63 bits can count")
}

// Valid reports whether [MakeShape] accepts the dimensions of s.
func (s Shape) Valid() bool { return s.rank <= MaxRank }

// Rank returns the number of dimensions. It is 0 for an invalid shape.
func (s Shape) Rank() int {
	if !s.Valid() {
		return 0
	}
	return int(s.rank)
}

// Dim returns the extent of dimension i, or 0 for a dimension that the shape does not have.
func (s Shape) Dim(i int) int64 {
	if i < 0 || i >= s.Rank() {
		return 0
	}
	return s.dims[i]
}

// Dims returns the extents of the dimensions, outermost first. The slice is part of s, and the caller must not write to
// it.
func (s *Shape) Dims() []int64 {
	if s.rank > MaxRank {
		return nil
	}
	return s.dims[:s.rank]
}

// Elems returns the number of elements. It returns false for an invalid shape.
func (s Shape) Elems() (int64, bool) {
	if !s.Valid() {
		return 0, false
	}
	return s.count()
}

// Bytes returns how many bytes a contiguous tensor of this shape and type takes. It returns false when shape or type is
// invalid, or when the number does not fit into 63 bits.
func (s Shape) Bytes(d DType) (int64, bool) {
	n, ok := s.Elems()
	if !ok || !d.Valid() {
		return 0, false
	}
	return mul(n, int64(d.Size()))
}

// count multiplies the dimensions. One that is 0 makes it 0 however large the
// others are.
func (s *Shape) count() (int64, bool) {
	n, ok, zero := int64(1), true, false
	for _, d := range s.dims[:s.rank] {
		if d < 0 {
			return 0, false
		}
		if d == 0 {
			zero = true
		}
		if ok {
			n, ok = mul(n, d)
		}
	}
	if zero {
		return 0, true
	}
	return n, ok
}

// mul multiplies two numbers that are not negative.
func mul(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > 1<<63-1 {
		return 0, false
	}
	return int64(lo), true
}

// withDim0 returns s with another extent of dimension 0. The caller has
// checked that there is one, and n is not larger than it was.
func (s Shape) withDim0(n int64) Shape {
	s.dims[0] = n
	return s
}

// String returns a text such as "[2 3]". For a scalar that is "[]".
func (s Shape) String() string {
	if !s.Valid() {
		return "[invalid]"
	}
	return dimsText(s.dims[:s.rank])
}

func dimsText(list []int64) string {
	b := []byte{'['}
	for i, d := range list {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	return string(append(b, ']'))
}
