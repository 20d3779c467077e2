package peer

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/strided"
	"github.com/stepvan/stepvan/tensor"
)

// form is what one peer tells another of a view: its type and shape, and where it is, if the other may reach it.
type form struct {
	dtype   tensor.DType
	rank    uint8
	dims    [tensor.MaxRank]int64
	strides [tensor.MaxRank]int64 // in elements
	place   link.Target           // of the first element; zero: the other peer does not reach it
}

// formOf describes v, which the other peer does not reach.
func formOf(v *tensor.Strided) (f form) {
	f.dtype = v.DType()
	f.rank = uint8(copy(f.dims[:], v.Dims()))
	copy(f.strides[:], v.Strides())
	return f
}

// shape is the shape of the view.
func (f *form) shape() tensor.Shape { return tensor.ShapeOf(f.dims[:f.rank]...) }

// String reads "bfloat16[2 3]".
func (f *form) String() string { return f.dtype.String() + f.shape().String() }

// bytes is the size of all elements.
func (f *form) bytes() int64 {
	shape := f.shape()
	n, _ := shape.Bytes(f.dtype)
	return n
}

// span is how many bytes there are from the first element to behind the last one. A form that was decoded has one.
func (f *form) span() int64 {
	n := int64(1)
	for i := range f.rank {
		if f.dims[i] == 0 {
			return 0
		}
		n += (f.dims[i] - 1) * f.strides[i]
	}
	return n * int64(f.dtype.Size())
}

// append encodes f. See readForm.
func (f *form) append(b []byte) []byte {
	flags := byte(0)
	if !f.place.IsZero() {
		flags = 1
	}
	b = append(b, byte(f.dtype), f.rank, flags)
	for i := range f.rank {
		b = binary.AppendUvarint(b, uint64(f.dims[i]))
		b = binary.AppendUvarint(b, uint64(f.strides[i]))
	}
	if flags != 0 {
		b = binary.LittleEndian.AppendUint64(b, uint64(f.place.Grant))
		b = binary.LittleEndian.AppendUint32(b, f.place.Generation)
		b = binary.LittleEndian.AppendUint64(b, uint64(f.place.Offset))
	}
	return b
}

const (
	// maxSpan bounds what a view of a peer may claim to cover, in elements.
	maxSpan = 1 << 56
	// maxOffset bounds where in a grant it may claim to be. The end of the view is a number of bytes as well.
	maxOffset = 1 << 60
)

// form reads what form.append has written. It trusts nothing.
func (d *decoder) form() (f form) {
	f.dtype = tensor.DType(d.u8())
	f.rank = d.u8()
	flags := d.u8()
	if !f.dtype.Valid() || f.rank > tensor.MaxRank || flags > 1 {
		d.fail("form", "type %d with %d dimensions and flags %#x is not a view", f.dtype, f.rank, flags)
		return form{}
	}
	span, elems := uint64(1), uint64(1)
	for i := range f.rank {
		n, step := d.uvarint(), d.uvarint()
		f.dims[i], f.strides[i] = int64(n), int64(step)
		over, total := bits.Mul64(max(n, 1)-1, step)
		more, product := bits.Mul64(elems, max(n, 1))
		span, elems = span+total, product
		if over != 0 || more != 0 || total > maxSpan || span > maxSpan || elems > maxSpan || n > maxSpan || step > maxSpan {
			d.fail("form", "dimension %d of %d elements, %d apart, leaves the address space", i, n, step)
			return form{}
		}
	}
	if flags != 0 {
		f.place = link.Target{Grant: link.GrantID(d.u64()), Generation: d.u32(), Offset: int64(d.u64())}
		if f.place.IsZero() || f.place.Offset < 0 || f.place.Offset > maxOffset {
			d.fail("form", "byte %d of grant %d, limit %d", f.place.Offset, f.place.Grant, int64(maxOffset))
		}
	}
	if d.err != nil {
		return form{}
	}
	return f
}

// address is the first element of a view that the processor reaches.
func address(v *tensor.Strided) unsafe.Pointer {
	m := v.Memory()
	return unsafe.Pointer(unsafe.SliceData(m.Bytes()))
}

// pointer is the first byte of b.
func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// loop is a dimension of a view: so many steps of so many elements.
type loop struct{ extent, stride int64 }

// loops lists the dimensions of f that have more than one element, outermost first. Those that touch are joined.
func (f *form) loops(list []loop) []loop {
	for i := range f.rank {
		l := loop{f.dims[i], f.strides[i]}
		if l.extent == 1 {
			continue
		}
		if n := len(list); n > 0 && list[n-1].stride == l.extent*l.stride {
			list[n-1] = loop{list[n-1].extent * l.extent, l.stride}
			continue
		}
		list = append(list, l)
	}
	return list
}

// elements is how many elements the view has.
func (f *form) elements() int64 {
	n := int64(1)
	for _, d := range f.dims[:f.rank] {
		n *= d
	}
	return n
}

// route makes the walk from one view to another that has as many elements. The elements go in the order of the shapes,
// which need not be the same. They must have a common division. The shapes of a tensor and of its copy that was
// reshaped have one.
func route(src, dst *form) (strided.Walk, error) {
	n, err := nestBetween(src, dst)
	if err != nil || src.elements() == 0 {
		return strided.Walk{}, err
	}
	return strided.Between(int64(dst.dtype.Size()), int64(src.dtype.Size()), n.loops()...), nil
}

// nestBetween makes the loops over both views, in the order of their shapes.
func nestBetween(src, dst *form) (list nest, err error) {
	if src.elements() == 0 {
		return nest{}, nil
	}
	sizes := [2]int64{int64(dst.dtype.Size()), int64(src.dtype.Size())}
	var buffers [2][tensor.MaxRank]loop
	from, to := src.loops(buffers[0][:0]), dst.loops(buffers[1][:0])
	var dims [strided.MaxRank]strided.Dim
	at := len(dims)
	for len(from) > 0 && len(to) > 0 {
		a, b := &from[len(from)-1], &to[len(to)-1]
		n := min(a.extent, b.extent)
		if a.extent%n != 0 || b.extent%n != 0 || at == 0 {
			return nest{}, errs.Invalid(
				"the shapes %s and %s of the two sides have no common division: give views of the same shape", src.shape(), dst.shape())
		}
		at--
		dims[at] = strided.Dim{Extent: n, To: b.stride * sizes[0], From: a.stride * sizes[1]}
		from, to = a.step(n, from), b.step(n, to)
	}
	list.rank = copy(list.dims[:], dims[at:])
	return list, nil
}

// step takes the innermost n elements off the last loop of list, which is l.
func (l *loop) step(n int64, list []loop) []loop {
	l.extent /= n
	l.stride *= n
	if l.extent == 1 {
		return list[:len(list)-1]
	}
	return list
}
