package tensor

import "unsafe"

// aligned returns n bytes of Go memory at an address that suits every type.
func aligned(n int64) []byte {
	words := make([]uint64, n/8+1)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}
