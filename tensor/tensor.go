package tensor

import (
	"unsafe"

	"github.com/stepvan/stepvan/internal/errs"
)

// Tensor is a contiguous view of memory with an element type and a shape. It is a value: a copy of it is a second view
// of the same memory. The program must order reads and writes of the bytes. The zero value is not a tensor, and
// [Tensor.Check] refuses it.
//
// Methods on the hot path have a pointer receiver. A call with a copy of the Tensor would take 3 ns more, and an
// exchange makes thirty such calls.
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

// Shape returns the shape.
func (t *Tensor) Shape() Shape { return t.shape }

// Dims returns the extents of the dimensions, outermost first. The slice is part of the tensor, and the caller must not
// write to it.
func (t *Tensor) Dims() []int64 { return t.shape.Dims() }

// String returns type and shape, such as "bfloat16[2 3]", and no elements.
func (t Tensor) String() string {
	if !t.dtype.Valid() {
		return "no tensor"
	}
	return t.dtype.String() + t.shape.String()
}

// Len returns the size of the view in bytes.
func (t *Tensor) Len() int { return int(t.n) }

// Region returns the region that holds the memory. It is nil for memory of the Go heap.
func (t *Tensor) Region() *Region { return t.region }

// Offset returns where the view begins, in bytes from the start of its region. For memory of the Go heap it counts from
// the start of the slice.
func (t *Tensor) Offset() int64 { return t.off }

// Valid reports whether [Tensor.Check] returns nil.
func (t *Tensor) Valid() bool { return t.Check() == nil }

// Check returns why the program cannot use the tensor, or nil. The error is [stepvan.ErrInvalid] for the zero value,
// and [stepvan.ErrClosed] after the region has ended. It is [stepvan.ErrStale] when the region's memory has another
// use. Budget: 0 allocations.
func (t *Tensor) Check() error {
	if !t.dtype.Valid() {
		return errNoTensor
	}
	if t.region == nil {
		return nil
	}
	return t.region.check(t.gen)
}

// CheckHost returns why the processor cannot use the bytes of the tensor, or nil. Beside the errors of [Tensor.Check]
// that is [stepvan.ErrNotSupported] for memory of another device. Budget: 0 allocations without an error.
func (t *Tensor) CheckHost() error {
	if err := t.Check(); err != nil {
		return err
	}
	if t.region != nil && t.region.start != 0 {
		return t.region.device.errDevice()
	}
	return nil
}

// Device returns what holds the memory.
func (t *Tensor) Device() Device {
	if t.region == nil {
		return Device{Kind: DeviceCPU}
	}
	return t.region.Device()
}

// Foreign reports whether the memory is neither of an allocator nor of the Go heap: the program has given its address.
func (t *Tensor) Foreign() bool { return t.region != nil && t.region.alloc == nil }

// Address returns where the view begins, as a number, on whatever device. It is for stepvan itself.
func (t *Tensor) Address() uintptr { return t.address() }

// Bytes returns the memory of the view, or nil when [Tensor.CheckHost] returns an error. The program may use the slice
// until the region ends. When another goroutine may end the region, the caller holds it with [Tensor.Retain]. Budget: 0
// allocations.
func (t *Tensor) Bytes() []byte {
	if t.Check() != nil {
		return nil
	}
	if t.region != nil {
		if t.region.start != 0 {
			return nil
		}
		return t.region.mem[t.off : t.off+t.n : t.off+t.n]
	}
	if t.n == 0 {
		return []byte{}
	}
	return unsafe.Slice((*byte)(unsafe.Add(t.heap, t.off)), t.n)
}

// Addresses returns the memory of the view by its addresses, also where an accelerator holds it. The slice says where
// the memory is, for a van or a device to reach it. The processor uses its bytes only where [Tensor.CheckHost] returns
// nil. It is nil when [Tensor.Check] returns an error. It is for stepvan itself. Budget: 0 allocations.
func (t *Tensor) Addresses() []byte {
	if t.region == nil || t.region.start == 0 {
		return t.Bytes()
	}
	if t.Check() != nil {
		return nil
	}
	at := t.address()
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), t.n) // not a conversion: the memory is not Go's
}

// address returns where the view begins, as a number: it may be looked at
// whether or not the memory may be.
func (t *Tensor) address() uintptr {
	if t.region != nil {
		return t.region.address() + uintptr(t.off)
	}
	return uintptr(t.heap) + uintptr(t.off)
}

// Retain holds the region for an operation that uses the tensor, as [Region.Retain] does. It returns the errors of
// [Tensor.Check]. For memory of the Go heap it has no effect. Budget: one atomic, 0 allocations.
func (t *Tensor) Retain() error {
	if !t.dtype.Valid() {
		return errNoTensor
	}
	if t.region == nil {
		return nil
	}
	return t.region.retain(t.gen)
}

// Release ends one Retain that returned nil.
func (t *Tensor) Release() {
	if t.region != nil {
		t.region.Release()
	}
}

var errNoTensor = errs.Invalid("the zero Tensor holds nothing; make one with an Allocator or a From function")
