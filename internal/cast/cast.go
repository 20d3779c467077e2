package cast

import (
	"unsafe"

	"github.com/stepvan/stepvan/internal/strided"
	"github.com/stepvan/stepvan/tensor"
)

// Copy merges all elements of a view into another one of the same shape. It returns the errors of [New] and of
// [tensor.Strided.CheckSource]. The caller holds the regions of both views. Budget: 0 allocations.
func Copy(to, from *tensor.Strided, m Merge) error {
	k, err := New(to.DType(), from.DType(), m)
	if err != nil {
		return err
	}
	if err := to.CheckSource(from); err != nil {
		return err
	}
	k.copy(to, from)
	return nil
}

// Divide divides all elements of a view by a number. It returns the errors of [NewDivision] and of
// [tensor.Strided.CheckDestination]. The caller holds the region.
func Divide(v *tensor.Strided, by int) error {
	k, err := NewDivision(v.DType(), by)
	if err != nil {
		return err
	}
	if err := v.CheckDestination(); err != nil {
		return err
	}
	k.copy(v, v)
	return nil
}

// copy works on all elements of two views of the kernel's types and of one shape.
func (k *Kernel) copy(to, from *tensor.Strided) {
	var dims [tensor.MaxRank]strided.Dim
	shape, a, b := to.Dims(), to.Strides(), from.Strides()
	for i, n := range shape {
		dims[i] = strided.Dim{Extent: n, To: a[i] * k.size[0], From: b[i] * k.size[1]}
	}
	w := k.Walk(dims[:len(shape)]...)
	if x, y := to.Memory(), from.Memory(); x.Len() > 0 {
		k.Apply(&w, unsafe.Pointer(unsafe.SliceData(x.Bytes())), unsafe.Pointer(unsafe.SliceData(y.Bytes())))
	}
}
