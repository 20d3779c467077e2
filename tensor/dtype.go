package tensor

import (
	"strconv"
	"strings"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// DType is the element type of a tensor. The numbers are part of the wire format, so their meaning never changes. Zero
// is not a type.
type DType uint8

// These are the dense element types of torch.
const (
	Bool           DType = 1
	Uint8          DType = 2
	Int8           DType = 3
	Uint16         DType = 4
	Int16          DType = 5
	Uint32         DType = 6
	Int32          DType = 7
	Uint64         DType = 8
	Int64          DType = 9
	Float16        DType = 10
	BFloat16       DType = 11
	Float32        DType = 12
	Float64        DType = 13
	Complex32      DType = 14 // two float16
	Complex64      DType = 15 // two float32
	Complex128     DType = 16 // two float64
	Float8E4M3FN   DType = 17
	Float8E5M2     DType = 18
	Float8E4M3FNUZ DType = 19
	Float8E5M2FNUZ DType = 20
	Float8E8M0FNU  DType = 21 // a power of two, the scale of a block
	Float4E2M1FNX2 DType = 22 // one byte holds two numbers; shapes count bytes, as in torch
)

// dtypeEnd is the number after the last type.
const dtypeEnd DType = 23

// dtypes is indexed by DType.
var dtypes = [dtypeEnd]struct {
	name  string
	size  uint8
	align uint8 // that of the Go type which As yields
}{
	Bool:           {"bool", 1, 1},
	Uint8:          {"uint8", 1, 1},
	Int8:           {"int8", 1, 1},
	Uint16:         {"uint16", 2, 2},
	Int16:          {"int16", 2, 2},
	Uint32:         {"uint32", 4, 4},
	Int32:          {"int32", 4, 4},
	Uint64:         {"uint64", 8, 8},
	Int64:          {"int64", 8, 8},
	Float16:        {"float16", 2, 2},
	BFloat16:       {"bfloat16", 2, 2},
	Float32:        {"float32", 4, 4},
	Float64:        {"float64", 8, 8},
	Complex32:      {"complex32", 4, 4},
	Complex64:      {"complex64", 8, 4},
	Complex128:     {"complex128", 16, 8},
	Float8E4M3FN:   {"float8_e4m3fn", 1, 1},
	Float8E5M2:     {"float8_e5m2", 1, 1},
	Float8E4M3FNUZ: {"float8_e4m3fnuz", 1, 1},
	Float8E5M2FNUZ: {"float8_e5m2fnuz", 1, 1},
	Float8E8M0FNU:  {"float8_e8m0fnu", 1, 1},
	Float4E2M1FNX2: {"float4_e2m1fn_x2", 1, 1},
}

// Valid reports whether d is one of the types above.
func (d DType) Valid() bool { return d > 0 && d < dtypeEnd }

// Size returns the size of one element in bytes. It is 0 for an invalid type.
func (d DType) Size() int {
	if !d.Valid() {
		return 0
	}
	return int(dtypes[d].size)
}

// Align returns the alignment of the address of an element in bytes. It is 0 for an invalid type.
func (d DType) Align() int {
	if !d.Valid() {
		return 0
	}
	return int(dtypes[d].align)
}

// String returns torch's name of the type without "torch.", such as "bfloat16".
func (d DType) String() string {
	if !d.Valid() {
		return "dtype(" + strconv.Itoa(int(d)) + ")"
	}
	return dtypes[d].name
}

// ParseDType returns the type with this name in torch, with or without "torch.". The error is [stepvan.ErrInvalid].
func ParseDType(name string) (DType, error) {
	short := strings.TrimPrefix(name, "torch.")
	for d := DType(1); d < dtypeEnd; d++ {
		if dtypes[d].name == short {
			return d, nil
		}
	}
	return 0, errs.Invalid("%q is not a dense element type; use a torch name such as float32, bfloat16 or float8_e4m3fn", text.Cut(name))
}
