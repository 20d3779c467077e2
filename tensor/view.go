package tensor

import "github.com/stepvan/stepvan/internal/errs"

// Slice returns a view of rows lo to hi-1 along dimension 0.
func (t Tensor) Slice(lo, hi int64) (Tensor, error) {
	if !t.dtype.Valid() {
		return Tensor{}, errNoTensor
	}
	if t.shape.Rank() == 0 {
		return Tensor{}, errs.Invalid("a scalar has no rows to slice")
	}
	rows := t.shape.Dim(0)
	if lo < 0 || hi < lo || hi > rows {
		return Tensor{}, errs.Invalid("rows %d to %d are not within the %d rows of %s", lo, hi, rows, t.shape)
	}
	var row int64
	if rows > 0 {
		row = t.n / rows
	}
	t.shape = t.shape.withDim0(hi - lo)
	t.off += lo * row
	t.n = (hi - lo) * row
	return t, nil
}

// View returns a view of the same memory with another shape, which must have as many elements.
func (t Tensor) View(shape Shape) (Tensor, error) {
	if !t.dtype.Valid() {
		return Tensor{}, errNoTensor
	}
	n, ok := shape.Bytes(t.dtype)
	if !ok || n != t.n {
		return Tensor{}, errs.Invalid("%s of %s cannot be viewed as %s: the number of elements differs", t.shape, t.dtype, shape)
	}
	t.shape = shape
	return t, nil
}

// Reinterpret returns a view of the same memory with another element type of the same size, for example bfloat16
// instead of uint16.
func (t Tensor) Reinterpret(d DType) (Tensor, error) {
	if !t.dtype.Valid() {
		return Tensor{}, errNoTensor
	}
	if d.Size() != t.dtype.Size() {
		return Tensor{}, errs.Invalid("%s cannot be reinterpreted as %s: the size of the elements differs", t.dtype, d)
	}
	if err := checkAligned(t.address(), d); err != nil {
		return Tensor{}, err
	}
	t.dtype = d
	return t, nil
}
