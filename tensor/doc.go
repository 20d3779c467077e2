// Package tensor describes the memory that stepvan moves: keys, element types,
// shapes, tensors, and the regions of memory off the Go heap that hold them.
//
// # Views and regions
//
// A Tensor is a small value: a contiguous view of memory with a type and a
// shape. Slice, View and Reinterpret make further views of the same memory;
// nothing is ever copied. The memory is one of three sorts:
//
//   - a Region of an Allocator: cut from a few large memory files that other
//     processes of the machine can map, sealed and fully allocated
//   - foreign memory given by its address (FromPointer), whose owner the region
//     keeps alive
//   - a slice of the Go heap (FromSlice, FromBytes), which the tensor keeps alive
//
// # Ownership
//
// Whoever asked for a region owns it, and ends it with Region.Close or
// Allocator.Put. An operation on it (a transfer, say) holds it with Retain
// until Release: meanwhile Close is refused with stepvan.ErrBusy, and Put takes
// effect with the last Release. A tensor carries the generation of its region,
// so that one whose memory was given back answers stepvan.ErrClosed or
// stepvan.ErrStale. The slices that Bytes and As return carry nothing: they must
// not be used once the region has ended.
//
// # Concurrency
//
// All methods of all types may be called concurrently. The bytes themselves are
// for the program to order.
package tensor
