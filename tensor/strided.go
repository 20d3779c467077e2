package tensor

import (
	"slices"
	"unsafe"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/strided"
)

// Strided is a rectangular view of memory: an element type, a shape, and a stride for each dimension, counted in
// elements as torch counts them. A stride is 0 or more. A dimension of stride 0 repeats its elements, so such a view
// may be read and not written to. Strided is a value, as [Tensor] is, with the same rules for its memory.
type Strided struct {
	memory  Tensor // of one dimension, from the first element to the last
	shape   Shape
	strides [MaxRank]int64
}

// Strided returns the tensor as a view with the strides of a contiguous tensor.
func (t *Tensor) Strided() Strided {
	s := Strided{memory: *t, shape: t.shape}
	stride := int64(1)
	elems, _ := t.shape.Elems()
	for i := t.shape.Rank() - 1; i >= 0; i-- {
		s.strides[i] = stride
		if elems > 0 { // the dimensions of an empty tensor may be as large as they like
			stride *= t.shape.dims[i]
		}
	}
	s.memory.shape = ShapeOf(elems)
	return s
}

// AsStrided returns a view of the memory of t. It begins offset elements after the first one of t. The
// error is [stepvan.ErrInvalid] where the view would leave the tensor.
func (t *Tensor) AsStrided(shape Shape, strides []int64, offset int64) (Strided, error) {
	if err := t.Check(); err != nil {
		return Strided{}, err
	}
	span, err := Span(t.dtype, shape, strides)
	if err != nil {
		return Strided{}, err
	}
	have := t.n / int64(t.dtype.Size())
	if offset < 0 || offset > have || span > have-offset {
		return Strided{}, errs.Invalid("a view of %s with strides %v from element %d on leaves the tensor %s", shape, strides, offset, *t)
	}
	part := *t
	part.off += offset * int64(t.dtype.Size())
	part.n, part.shape = span*int64(t.dtype.Size()), ShapeOf(span)
	return makeStrided(part, &shape, strides), nil
}

// StridedFrom is [FromPointer] for a view. ptr is its first element.
func StridedFrom(ptr unsafe.Pointer, d DType, shape Shape, strides []int64, owner any) (Strided, error) {
	span, err := Span(d, shape, strides)
	if err != nil {
		return Strided{}, err
	}
	t, err := FromPointer(ptr, d, ShapeOf(span), owner)
	if err != nil {
		return Strided{}, err
	}
	return makeStrided(t, &shape, strides), nil
}

func makeStrided(memory Tensor, shape *Shape, strides []int64) Strided {
	s := Strided{memory: memory, shape: *shape}
	copy(s.strides[:], strides)
	return s
}

// Span returns how many elements there are from the first to the last of a view, with those that lie between its own.
// It refuses what [StridedFrom] refuses: the error is [stepvan.ErrInvalid].
func Span(d DType, shape Shape, strides []int64) (span int64, err error) {
	if _, err := sizeOf(d, &shape); err != nil {
		return 0, err
	}
	if len(strides) != shape.Rank() {
		return 0, errs.Invalid("%d strides do not fit the %d dimensions of %s", len(strides), shape.Rank(), shape)
	}
	for i, n := range strides {
		if n < 0 {
			return 0, errs.Invalid("stride %d of dimension %d of %s is negative; make a copy that is not reversed", n, i, shape)
		}
	}
	if slices.Contains(shape.Dims(), 0) {
		return 0, nil
	}
	span = 1
	for i, n := range shape.Dims() {
		steps, ok := mul(n-1, strides[i])
		if span += steps; !ok || span < steps {
			return 0, errs.Invalid("a view of %s with strides %v leaves the address space", shape, strides)
		}
	}
	if _, ok := mul(span, int64(d.Size())); !ok {
		return 0, errs.Invalid("a view of %s with strides %v leaves the address space", shape, strides)
	}
	return span, nil
}

// DType returns the element type.
func (s *Strided) DType() DType { return s.memory.dtype }

// Shape returns the shape.
func (s *Strided) Shape() Shape { return s.shape }

// Dims returns the extents of the dimensions, outermost first. The caller must not write to the slice.
func (s *Strided) Dims() []int64 { return s.shape.Dims() }

// Strides returns the strides of the dimensions in elements. The caller must not write to the slice.
func (s *Strided) Strides() []int64 { return s.strides[:s.shape.Rank()] }

// Len returns the size of all elements in bytes.
func (s *Strided) Len() int64 {
	n, _ := s.shape.Bytes(s.memory.dtype)
	return n
}

// Memory returns the memory from the first element to the last, with what lies between them.
func (s Strided) Memory() Tensor { return s.memory }

// String returns type, shape and strides, such as "bfloat16[2 3] strides [3 1]".
func (s Strided) String() string {
	if !s.memory.dtype.Valid() {
		return "no view"
	}
	return s.memory.dtype.String() + s.shape.String() + " strides " + dimsText(s.Strides())
}

// Check returns why the program cannot use the view, as [Tensor.Check] does.
func (s *Strided) Check() error { return s.memory.Check() }

// CheckDestination returns why nobody may write to the view, or nil. Beside the errors of [Tensor.CheckHost] that is
// [stepvan.ErrInvalid] where two elements are in one place. Budget: 0 allocations without an error.
func (s *Strided) CheckDestination() error {
	if err := s.memory.CheckHost(); err != nil {
		return err
	}
	switch overlap, sure := strided.Overlaps(s.Dims(), s.Strides()); {
	case overlap:
		return errs.Invalid("%s has several elements in one place, so it cannot be written to; give a view without repeated elements", *s)
	case !sure:
		return errs.Invalid("whether %s has several elements in one place cannot be found out; give a view with fewer dimensions", *s)
	}
	return nil
}

// Retain holds the region as [Tensor.Retain] does.
func (s *Strided) Retain() error { return s.memory.Retain() }

// Release ends one Retain that returned nil.
func (s *Strided) Release() { s.memory.Release() }

// Narrow returns the part of the view with elements lo to lo+n of a dimension.
func (s Strided) Narrow(dim int, lo, n int64) (Strided, error) {
	if dim < 0 || dim >= s.shape.Rank() {
		return Strided{}, errs.Invalid("%s has no dimension %d", s, dim)
	}
	if have := s.shape.dims[dim]; lo < 0 || n < 0 || lo > have || n > have-lo {
		return Strided{}, errs.Invalid("%d elements from %d on leave dimension %d of %s", n, lo, dim, s)
	}
	part := s
	part.shape.dims[dim] = n
	span, err := Span(s.memory.dtype, part.shape, part.Strides())
	if err != nil {
		return Strided{}, err
	}
	size := int64(s.memory.dtype.Size())
	if span > 0 {
		part.memory.off += lo * s.strides[dim] * size
	}
	part.memory.n, part.memory.shape = span*size, ShapeOf(span)
	return part, nil
}

// Transpose returns the view with two dimensions in each other's place.
func (s Strided) Transpose(a, b int) (Strided, error) {
	if rank := s.shape.Rank(); a < 0 || b < 0 || a >= rank || b >= rank {
		return Strided{}, errs.Invalid("%s has no dimensions %d and %d", s, a, b)
	}
	other := s
	d, n := &other.shape.dims, &other.strides
	d[a], d[b] = d[b], d[a]
	n[a], n[b] = n[b], n[a]
	return other, nil
}

// Contiguous returns the view as a tensor, and false where it is not contiguous in the order of its dimensions.
func (s Strided) Contiguous() (Tensor, bool) {
	if s.Check() != nil {
		return Tensor{}, false
	}
	if gap, _ := firstGap(s.shape, s.Strides()); gap >= 0 {
		return Tensor{}, false
	}
	t := s.memory
	t.shape = s.shape
	return t, true
}

// Places says where the elements lie, for [strided.Intersect] and [strided.FirstIntersection]. It is for stepvan
// itself. Budget: 0 allocations.
func (s *Strided) Places() strided.View {
	if s.memory.n == 0 {
		return strided.View{}
	}
	return strided.NewView(int64(s.memory.address()), int64(s.memory.dtype.Size()), s.Dims(), s.Strides())
}

// CheckSource returns why the elements of another view cannot be copied to this one, or nil. Beside the errors of
// CheckDestination that is [stepvan.ErrInvalid] for another shape, and for views that share elements. It is for stepvan
// itself. Budget: 0 allocations without an error.
func (s *Strided) CheckSource(from *Strided) error {
	if err := s.CheckDestination(); err != nil {
		return err
	}
	if err := from.memory.CheckHost(); err != nil {
		return err
	}
	if s.shape != from.shape {
		return errs.Invalid("%s cannot take the elements of %s; give views of one shape", *s, *from)
	}
	to, at := s.Places(), from.Places()
	if intersect, sure := strided.Intersect(&to, &at); intersect || !sure {
		return errs.Invalid("%s shares elements with %s; copy by way of a third view", *s, *from)
	}
	return nil
}

// CopyFrom copies all elements of another view of the same type and shape. The views may lie between one another, but
// they share no element. Budget: 0 allocations.
func (s *Strided) CopyFrom(from *Strided) error {
	if err := s.Retain(); err != nil {
		return err
	}
	defer s.Release()
	if err := from.Retain(); err != nil {
		return err
	}
	defer from.Release()
	if s.memory.dtype != from.memory.dtype {
		return errs.Invalid("%s cannot take the elements of %s; give views of one type", *s, *from)
	}
	if err := s.CheckSource(from); err != nil {
		return err
	}
	if s.memory.n == 0 {
		return nil
	}
	w := s.walk(from)
	w.Copy(unsafe.Pointer(unsafe.SliceData(s.memory.Bytes())), unsafe.Pointer(unsafe.SliceData(from.memory.Bytes())))
	return nil
}

// walk is how the elements of another view of the same shape are copied to s.
func (s *Strided) walk(from *Strided) strided.Walk {
	var dims [MaxRank]strided.Dim
	size, rank := int64(s.memory.dtype.Size()), s.shape.Rank()
	for i := range rank {
		dims[i] = strided.Dim{Extent: s.shape.dims[i], To: s.strides[i] * size, From: from.strides[i] * size}
	}
	return strided.New(size, dims[:rank]...)
}
