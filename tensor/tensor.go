package tensor

import (
	"unsafe"

	"github.com/stepvan/stepvan/internal/errs"
)

// Tensor is a contiguous view of memory with an element type and a shape. It is a value: a copy is a second view of the
// same memory. Its methods may be called concurrently. The program orders reads and writes of the bytes. The zero value
// is not a tensor.
//
// Methods that only look at a tensor have a pointer receiver, since a call with a copy takes 3 ns more and an exchange
// makes thirty.
type Tensor struct {
	region *Region        // nil: Go heap
	heap   unsafe.Pointer // start of the Go memory that was wrapped, keeps it alive; nil with a region
	off    int64          // of the first byte, from the start of region or heap
	n      int64          // bytes
	shape  Shape
	gen    uint32 // the region's when the view was made
	dtype  DType
}

// DType returns the element type.
func (t *Tensor) DType() DType { return t.dtype }

// Shape returns the extent.
func (t *Tensor) Shape() Shape { return t.shape }

// Dims returns the dimensions in place. The caller must not change them.
func (t *Tensor) Dims() []int64 { return t.shape.Dims() }

// String reads "bfloat16[2 3]": type and shape, not the elements.
func (t Tensor) String() string {
	if !t.dtype.Valid() {
		return "no tensor"
	}
	return t.dtype.String() + t.shape.String()
}

// Len returns the bytes of the view.
func (t *Tensor) Len() int { return int(t.n) }

// Region returns the region that holds the memory, nil for memory of the Go heap.
func (t *Tensor) Region() *Region { return t.region }

// Offset returns where the view begins, in bytes from the start of its region
// (of the wrapped slice for memory of the Go heap).
func (t *Tensor) Offset() int64 { return t.off }

// Valid reports whether Check finds nothing.
func (t *Tensor) Valid() bool { return t.Check() == nil }

// Check says why the tensor cannot be used. The error is stepvan.ErrInvalid for the
// zero value, and stepvan.ErrClosed after the region was closed. It is
// stepvan.ErrStale when the region's memory belongs to somebody else. Every tensor
// is contiguous; the constructors refuse others. 0 allocations.
func (t *Tensor) Check() error {
	if !t.dtype.Valid() {
		return errNoTensor
	}
	if t.region == nil {
		return nil
	}
	return t.region.check(t.gen)
}

// Bytes returns the memory of the view, or nil where [Tensor.Check] finds a fault. The slice may be used until the
// region is closed or put back. A caller that uses it while others may close the region holds it with [Tensor.Retain].
// 0 allocations.
func (t *Tensor) Bytes() []byte {
	if t.Check() != nil {
		return nil
	}
	if t.region != nil {
		return t.region.mem[t.off : t.off+t.n : t.off+t.n]
	}
	if t.n == 0 {
		return []byte{}
	}
	return unsafe.Slice((*byte)(unsafe.Add(t.heap, t.off)), t.n)
}

// address returns where the view begins, as a number: it may be looked at
// whether or not the memory may be.
func (t *Tensor) address() uintptr {
	base := t.heap
	if t.region != nil {
		base = unsafe.Pointer(unsafe.SliceData(t.region.mem))
	}
	return uintptr(base) + uintptr(t.off)
}

// Retain holds the region open for an operation that uses the tensor; it fails
// as Check does. Memory of the Go heap needs no hold. One atomic, 0 allocations.
func (t *Tensor) Retain() error {
	if !t.dtype.Valid() {
		return errNoTensor
	}
	if t.region == nil {
		return nil
	}
	return t.region.retain(t.gen)
}

// Release ends what a successful Retain began.
func (t *Tensor) Release() {
	if t.region != nil {
		t.region.Release()
	}
}

var errNoTensor = errs.Invalid("the zero Tensor holds nothing; make one with an Allocator or a From function")
