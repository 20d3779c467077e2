package tensor

import (
	"math"
	"unsafe"

	"github.com/stepvan/stepvan/internal/errs"
)

// maxAddress bounds the addresses of any process: five levels of page tables
// have 56 bits for it.
const maxAddress = 1 << 56

// FromSlice makes a tensor of a Go slice, without a copy. dims is the shape. Without dims the tensor has one dimension.
// The tensor keeps the slice alive. The slice must lie on the Go heap: use [FromPointer] for other memory.
func FromSlice[T Element](data []T, dims ...int64) (Tensor, error) {
	shape := ShapeOf(int64(len(data)))
	if len(dims) > 0 {
		var err error
		if shape, err = MakeShape(dims...); err != nil {
			return Tensor{}, err
		}
	}
	d := dtypeOf[T]()
	return fromHeap(unsafe.Pointer(unsafe.SliceData(data)), int64(len(data))*int64(d.Size()), d, shape)
}

// FromBytes is [FromSlice] for elements of type d that b holds as bytes. b must have the size of the tensor, and be
// aligned for d.
func FromBytes(d DType, shape Shape, b []byte) (Tensor, error) {
	return fromHeap(unsafe.Pointer(unsafe.SliceData(b)), int64(len(b)), d, shape)
}

// FromPointer makes a tensor of foreign memory at ptr. The memory must hold as many bytes as type and shape need. The
// tensor keeps owner alive until its region is closed. So a finalizer or [runtime.AddCleanup] of the owner may free the
// memory. When owner is nil, the caller must keep the memory valid as long as a tensor refers to it.
func FromPointer(ptr unsafe.Pointer, d DType, shape Shape, owner any) (Tensor, error) {
	n, err := sizeOf(d, &shape)
	if err != nil {
		return Tensor{}, err
	}
	if ptr == nil && n > 0 {
		return Tensor{}, errs.Invalid("a nil pointer cannot hold %s of %s", shape, d)
	}
	if at := int64(uintptr(ptr)); at < 0 || at > maxAddress || n > maxAddress-at {
		return Tensor{}, errs.Invalid("%d bytes at %p do not fit into an address space", n, ptr)
	}
	if err := checkAligned(uintptr(ptr), d); err != nil {
		return Tensor{}, err
	}
	w := NewWindow(nil)
	w.owner = owner
	r := w.Show(unsafe.Slice((*byte)(ptr), n))
	return Tensor{region: r, n: n, shape: shape, gen: r.Generation(), dtype: d}, nil
}

// FromDevice makes a tensor of memory at an address of an accelerator. It keeps owner alive as [FromPointer] does. The
// processor does not reach the memory: the tensor has no Bytes, and operations that need them refuse it with
// [stepvan.ErrNotSupported]. Memory of the host is for FromPointer.
func FromDevice(device Device, address uintptr, d DType, shape Shape, owner any) (Tensor, error) {
	n, err := sizeOf(d, &shape)
	if err == nil {
		err = CheckDevice(device, address, n)
	}
	if err == nil {
		err = checkAligned(address, d)
	}
	if err != nil {
		return Tensor{}, err
	}
	w := NewWindow(nil)
	w.owner = owner
	r := w.ShowDevice(device, address, n)
	return Tensor{region: r, n: n, shape: shape, gen: r.Generation(), dtype: d}, nil
}

// CheckDevice refuses what cannot be n bytes at an address of an accelerator. It does not ask the device.
func CheckDevice(device Device, address uintptr, n int64) error {
	if !device.Kind.Valid() || device.IsHost() || device.ID < 0 {
		return errs.Invalid("%s is not an accelerator; give a kind of DLPack that is not memory of the host, and a number from 0 on", device)
	}
	if address == 0 || uint64(n) > math.MaxUint64-uint64(address) {
		return errs.Invalid("%d bytes at %#x are not memory of %s", n, address, device)
	}
	return nil
}

// FromStrided is [FromPointer] for a tensor with strides, which it counts in elements as torch does. It returns
// [stepvan.ErrInvalid] when the tensor is not contiguous.
func FromStrided(ptr unsafe.Pointer, d DType, shape Shape, strides []int64, owner any) (Tensor, error) {
	if err := checkContiguous(shape, strides); err != nil {
		return Tensor{}, err
	}
	return FromPointer(ptr, d, shape, owner)
}

// FromRegion makes a tensor of the part of r that begins off bytes after its start. Budget: 0 allocations.
func FromRegion(r *Region, off int64, d DType, shape Shape) (t Tensor, err error) {
	err = t.SetRegion(r, off, d, &shape)
	return t, err
}

// SetRegion is [FromRegion], but it writes the tensor to t instead of returning a copy. It is for stepvan itself.
func (t *Tensor) SetRegion(r *Region, off int64, d DType, shape *Shape) error {
	*t = Tensor{}
	n, err := sizeOf(d, shape)
	if err != nil {
		return err
	}
	if r == nil {
		return errs.Invalid("a tensor needs a region; it is nil")
	}
	l := r.life()
	if err := l.check(l.generation()); err != nil {
		return err
	}
	if size := int64(r.Len()); off < 0 || off > size || n > size-off {
		return errs.Invalid("%d bytes at offset %d exceed the region's %d bytes", n, off, size)
	}
	if err := checkAligned(r.address()+uintptr(off), d); err != nil {
		return err
	}
	t.region, t.off, t.n, t.shape, t.gen, t.dtype = r, off, n, *shape, l.generation(), d
	return nil
}

func fromHeap(p unsafe.Pointer, have int64, d DType, shape Shape) (Tensor, error) {
	n, err := sizeOf(d, &shape)
	if err != nil {
		return Tensor{}, err
	}
	if n != have {
		return Tensor{}, errs.Invalid("%s of %s takes %d bytes, the slice has %d", shape, d, n, have)
	}
	if err := checkAligned(uintptr(p), d); err != nil {
		return Tensor{}, err
	}
	return Tensor{heap: p, n: n, shape: shape, dtype: d}, nil
}

func sizeOf(d DType, shape *Shape) (int64, error) {
	if !d.Valid() {
		return 0, errs.Invalid("%s is not an element type", d)
	}
	if !shape.Valid() {
		return 0, errs.Invalid("the shape is invalid; MakeShape says why")
	}
	elems, ok := shape.count()
	if !ok {
		return 0, tooLarge(d, shape)
	}
	n, ok := mul(elems, int64(dtypes[d].size))
	if !ok {
		return 0, tooLarge(d, shape)
	}
	return n, nil
}

func tooLarge(d DType, shape *Shape) error {
	return errs.Invalid("%s of %s takes more bytes than 63 bits can count", *shape, d)
}

func checkAligned(address uintptr, d DType) error {
	if address%uintptr(d.Align()) == 0 {
		return nil
	}
	return errs.Invalid("memory at %#x is not aligned to the %d bytes that %s needs; copy it to aligned memory", address, d.Align(), d)
}

// checkContiguous returns an error if the strides are not those of a contiguous tensor.
func checkContiguous(shape Shape, strides []int64) error {
	if len(strides) != shape.Rank() {
		return errs.Invalid("%d strides do not fit the %d dimensions of %s", len(strides), shape.Rank(), shape)
	}
	if i, want := firstGap(shape, strides); i >= 0 {
		return errs.Invalid("the tensor is not contiguous: stride %d of dimension %d of %s should be %d; call .contiguous() first",
			strides[i], i, shape, want)
	}
	return nil
}

// firstGap compares strides with those of a row-major layout. It returns the innermost dimension that differs, and the
// stride that it should have, or -1. The stride of a dimension of extent 1 never matters, and in an empty tensor none
// does. Budget: 0 allocations.
func firstGap(shape Shape, strides []int64) (dim int, want int64) {
	if n, ok := shape.Elems(); !ok || n == 0 {
		return -1, 0
	}
	want = 1
	for i := shape.Rank() - 1; i >= 0; i-- {
		if d := shape.Dim(i); d != 1 {
			if strides[i] != want {
				return i, want
			}
			want *= d
		}
	}
	return -1, 0
}
