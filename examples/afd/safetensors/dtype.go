package safetensors

// DType is an element type, spelt as in the header.
type DType string

// The element type that the readers of this package deliver.
const F32 DType = "F32"

// elementSize holds the bytes per element of every type that fills whole bytes.
var elementSize = map[DType]uint64{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1,
	"U16": 2, "I16": 2, "F16": 2, "BF16": 2,
	"U32": 4, "I32": 4, F32: 4,
	"U64": 8, "I64": 8, "F64": 8, "C64": 8,
}
