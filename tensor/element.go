package tensor

import (
	"unsafe"

	"github.com/stepvan/stepvan/internal/errs"
)

// Element is a Go type whose slices can be tensors. For a type that Go does not have, an unsigned integer of the same
// size is used. That is uint16 for float16 and bfloat16, uint8 for 8-bit and packed floats, and uint32 for complex32.
type Element interface {
	bool | uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 |
		float32 | float64 | complex64 | complex128
}

// dtypeOf returns the type that a slice of T is by itself.
func dtypeOf[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case bool:
		return Bool
	case uint8:
		return Uint8
	case int8:
		return Int8
	case uint16:
		return Uint16
	case int16:
		return Int16
	case uint32:
		return Uint32
	case int32:
		return Int32
	case uint64:
		return Uint64
	case int64:
		return Int64
	case float32:
		return Float32
	case float64:
		return Float64
	case complex64:
		return Complex64
	case complex128:
		return Complex128
	}
	return 0
}

// storage returns the unsigned integer that stands for a type Go does not
// have, and d itself for the others.
func (d DType) storage() DType {
	switch d {
	case Float16, BFloat16:
		return Uint16
	case Complex32:
		return Uint32
	case Float8E4M3FN, Float8E5M2, Float8E4M3FNUZ, Float8E5M2FNUZ, Float8E8M0FNU, Float4E2M1FNX2:
		return Uint8
	}
	return d
}

// As returns the elements of the tensor as a slice over the same memory, without a copy. T must be the Go type of the
// tensor's elements. Where Go has no such type, T is the unsigned integer of the same size: see [Element]. T may also
// be uint8 for a tensor of bool, since a peer may have written bytes other than 0 and 1. The program may use the slice
// as long as that of [Tensor.Bytes]. The error is [stepvan.ErrInvalid] for another T, or that of [Tensor.CheckHost].
func As[T Element](t Tensor) ([]T, error) {
	if err := t.CheckHost(); err != nil {
		return nil, err
	}
	want := dtypeOf[T]()
	if want != t.dtype && want != t.dtype.storage() && (t.dtype != Bool || want != Uint8) {
		return nil, errs.Invalid("a tensor of %s cannot be read as a slice of %s; use %s",
			t.dtype, want, t.dtype.storage())
	}
	b := t.Bytes()
	if len(b) == 0 {
		return []T{}, nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/t.dtype.Size()), nil
}
