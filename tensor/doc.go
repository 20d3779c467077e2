// Package tensor describes the memory that stepvan moves. It has keys, element types, shapes and tensors, and the
// regions of memory outside the Go heap that hold tensors.
//
// # Views and regions
//
// A [Tensor] is a contiguous view of memory, with an element type and a shape. [Tensor.Slice], [Tensor.View] and
// [Tensor.Reinterpret] make further views of the same memory, and copy no elements. There are three sorts of memory
// that the processor reaches:
//
//   - a [Region] of an [Allocator], which is part of a large memory file that other processes of the machine can map;
//   - foreign memory, which the program gives by its address and with its owner ([FromPointer]);
//   - a slice of the Go heap, which the tensor keeps alive ([FromSlice], [FromBytes]).
//
// A [Strided] is a view that need not be contiguous, such as some columns of a matrix. It is made of a tensor
// ([Tensor.Strided], [Tensor.AsStrided]) or of foreign memory ([StridedFrom]), and can be copied ([Strided.CopyFrom]).
// What workers and servers exchange is contiguous.
//
// Memory of an accelerator is foreign memory that the processor does not reach ([FromDevice], [Tensor.Device]).
// Whatever needs its bytes refuses the tensor, with [stepvan.ErrNotSupported].
//
// # Ownership
//
// The caller that asked for a region owns it, and ends it with [Region.Close] or [Allocator.Put]. An operation on the
// region, such as a transfer, holds it from [Region.Retain] to [Region.Release]. During that time Close returns
// [stepvan.ErrBusy], and Put takes effect with the last Release.
//
// A tensor remembers the generation of its region. When the region has ended, the tensor's methods return
// [stepvan.ErrClosed], or [stepvan.ErrStale] when the memory has another use. A slice that [Tensor.Bytes] or [As]
// returned has no such check. The program must not use it after the region has ended.
//
// # For stepvan itself
//
// A program does not need these names: [Window], [Place], [Allocator.Locate], [Allocator.Watch], [Allocator.Find],
// [Allocator.Keep], [NewFileNumber], [Region.FD], [Tensor.Address], [Tensor.SetRegion] and [Shape.SetDims]. The other
// packages of stepvan call them on the hot path, where a call through a further package would cost time.
//
// # Concurrency
//
// Any goroutine may call the methods of any type at any time. [Shape.SetDims], [Tensor.SetRegion] and the methods of
// [Window] are exceptions. The program must order reads and writes of the bytes.
//
// # Errors
//
// A function returns [stepvan.ErrInvalid] when its arguments do not fit, for example when a size differs or memory is
// not aligned. The text says what does not fit. A function on a region or tensor that has ended returns
// [stepvan.ErrClosed] or [stepvan.ErrStale]. The methods of Allocator that give memory also return:
//
//   - [stepvan.ErrWouldBlock] when the allocator would exceed [Options].MaxBytes;
//   - [stepvan.ErrNoMemory] when the system or the container has no memory left;
//   - [stepvan.ErrClosed] after [Allocator.Close].
package tensor
