package shm

import (
	"sync/atomic"
	"unsafe"
)

// LineBytes is the size of a cache line. Words that different processes write lie in lines of their own.
const LineBytes = 64

// Word64 is the word at offset off of b, rounded down to a multiple of 8, for use by several processes at once.
// A goroutine or process that Loads what a Store has stored sees what was written before that Store. The caller must
// not use it once b is unmapped. Storing into memory of MapReadOnly faults.
func Word64(b []byte, off int) *atomic.Uint64 {
	_ = b[off+7]
	return (*atomic.Uint64)(unsafe.Pointer(&b[off&^7])) // a processor may fault for a word across its boundary
}
