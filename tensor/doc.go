// Package tensor describes the memory that stepvan moves: keys, element types, shapes, tensors, and the regions of
// memory off the Go heap that hold them.
//
// # Views and regions
//
// A [Tensor] is a small value: a contiguous view of memory with a type and a shape. [Tensor.Slice], [Tensor.View] and
// [Tensor.Reinterpret] make further views of the same memory; nothing is copied. The memory is one of three sorts:
//
//   - a [Region] of an [Allocator]: part of a few large memory files that other processes of the machine can map;
//   - foreign memory, given by its address ([FromPointer]), whose owner the region keeps alive;
//   - a slice of the Go heap ([FromSlice], [FromBytes]), which the tensor keeps alive.
//
// # Ownership
//
// The caller that asked for a region owns it, and ends it with [Region.Close] or [Allocator.Put]. An operation on it,
// such as a transfer, holds it from [Region.Retain] to [Region.Release]. Meanwhile Close returns [stepvan.ErrBusy], and
// Put takes effect with the last Release. A tensor has the generation of its region. When the memory was given back,
// the tensor's methods return [stepvan.ErrClosed] or [stepvan.ErrStale]. The slices that [Tensor.Bytes] and [As] return
// have no generation: the program must not use them once the region has ended.
//
// # For stepvan itself
//
// The other packages of stepvan use some names that a program does not need: [Window], [Place], [Allocator.Locate],
// [Allocator.Watch], [Region.FD], [Tensor.SetRegion] and [Shape.SetDims]. They reach the inside of regions, tensors and
// shapes on the hot path, where a call through a further package would cost time.
//
// # Concurrency
//
// All methods of all types may be called concurrently. The program orders reads and writes of the bytes.
package tensor
