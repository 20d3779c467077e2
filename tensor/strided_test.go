package tensor

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func count(t *testing.T, dims ...int64) Tensor {
	t.Helper()
	n, _ := ShapeOf(dims...).Elems()
	data := make([]int32, n)
	for i := range data {
		data[i] = int32(i)
	}
	x, err := FromSlice(data, dims...)
	require.NoError(t, err)
	return x
}

// content copies a view to a slice.
func content(t *testing.T, s Strided) []int32 {
	t.Helper()
	to, err := FromSlice(make([]int32, s.Len()/4))
	require.NoError(t, err)
	to.shape = s.Shape() // also that of a scalar
	all := to.Strided()
	require.NoError(t, all.CopyFrom(&s))
	got, err := As[int32](to)
	require.NoError(t, err)
	return got
}

func TestStridedViews(t *testing.T) {
	x := count(t, 3, 4)
	s := x.Strided()
	require.Equal(t, []int64{4, 1}, s.Strides())
	require.EqualValues(t, 48, s.Len())
	require.Equal(t, "int32[3 4] strides [4 1]", s.String())
	back, ok := s.Contiguous()
	require.True(t, ok)
	require.Equal(t, x, back)

	turned, err := s.Transpose(0, 1)
	require.NoError(t, err)
	require.Equal(t, []int64{4, 3}, turned.Dims())
	require.Equal(t, []int32{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}, content(t, turned))
	_, ok = turned.Contiguous()
	require.False(t, ok)

	part, err := turned.Narrow(0, 1, 2)
	require.NoError(t, err)
	require.Equal(t, []int32{1, 5, 9, 2, 6, 10}, content(t, part))
	memory := part.Memory()
	require.Equal(t, 10*4, memory.Len(), "from 1 to 10")
	rows, err := s.Narrow(0, 1, 2)
	require.NoError(t, err)
	whole, ok := rows.Contiguous()
	require.True(t, ok)
	got, err := As[int32](whole)
	require.NoError(t, err)
	require.Equal(t, []int32{4, 5, 6, 7, 8, 9, 10, 11}, got)

	for _, dims := range [][]int64{{0, 3, 1 << 62}, {1 << 40, 1 << 40, 0}} {
		x := count(t, dims...)
		empty := x.Strided()
		for d := range dims {
			part, err := empty.Narrow(d, 0, 0)
			require.NoError(t, err)
			require.Empty(t, content(t, part))
		}
	}
	none, err := s.Narrow(1, 4, 0)
	require.NoError(t, err)
	require.Zero(t, none.Len())
	require.Empty(t, content(t, none))

	repeated, err := x.AsStrided(ShapeOf(2, 3), []int64{0, 4}, 1)
	require.NoError(t, err)
	require.Equal(t, []int32{1, 5, 9, 1, 5, 9}, content(t, repeated))
	scalar, err := x.AsStrided(ShapeOf(), nil, 11)
	require.NoError(t, err)
	require.Equal(t, []int32{11}, content(t, scalar))
}

func TestStridedRefusals(t *testing.T) {
	x := count(t, 3, 4)
	s := x.Strided()
	at := unsafe.Pointer(unsafe.SliceData(x.Bytes()))
	for want, f := range map[string]func() error{
		"leaves the tensor int32[3 4]": func() error { _, err := x.AsStrided(ShapeOf(3, 4), []int64{4, 1}, 1); return err },
		"from element -1 on":           func() error { _, err := x.AsStrided(ShapeOf(1), []int64{1}, -1); return err },
		"stride -1 of dimension 0":     func() error { _, err := x.AsStrided(ShapeOf(2), []int64{-1}, 5); return err },
		"1 strides do not fit":         func() error { _, err := x.AsStrided(ShapeOf(2, 2), []int64{1}, 0); return err },
		"leaves the address space": func() error {
			_, err := StridedFrom(at, Int32, ShapeOf(3), []int64{math.MaxInt64 / 2}, nil)
			return err
		},
		"is not an element type":             func() error { _, err := StridedFrom(at, DType(200), ShapeOf(3), []int64{1}, nil); return err },
		"has no dimension 2":                 func() error { _, err := s.Narrow(2, 0, 1); return err },
		"3 elements from 2 on leave":         func() error { _, err := s.Narrow(1, 2, 3); return err },
		"has no dimensions 0 and 2":          func() error { _, err := s.Transpose(0, 2); return err },
		"give views of one shape":            func() error { other, _ := s.Transpose(0, 1); return s.CopyFrom(&other) },
		"shares elements with":               func() error { return s.CopyFrom(&s) },
		"several elements in one place":      func() error { r, _ := x.AsStrided(ShapeOf(2, 3), []int64{0, 1}, 0); return r.CheckDestination() },
		"[3 3] strides [1 1] has several el": func() error { r, _ := x.AsStrided(ShapeOf(3, 3), []int64{1, 1}, 0); return r.CopyFrom(&s) },
		"the zero Tensor holds nothing":      func() error { var none Strided; return s.CopyFrom(&none) },
	} {
		err := f()
		require.ErrorIs(t, err, stepvan.ErrInvalid, want)
		require.ErrorContains(t, err, want)
	}
}

// Columns of one matrix lie between one another, and share no element.
func TestCopyBetweenColumnsOfOneMatrix(t *testing.T) {
	x := count(t, 3, 4)
	s := x.Strided()
	left, err := s.Narrow(1, 0, 2)
	require.NoError(t, err)
	right, err := s.Narrow(1, 2, 2)
	require.NoError(t, err)
	require.NoError(t, left.CopyFrom(&right))
	require.Equal(t, []int32{2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11}, content(t, s))
	middle, err := s.Narrow(1, 1, 2)
	require.NoError(t, err)
	require.ErrorIs(t, left.CopyFrom(&middle), stepvan.ErrInvalid)
}

// A view of foreign memory holds its owner, and one of a region ends with it.
func TestStridedMemory(t *testing.T) {
	data := []int32{0, 1, 2, 3, 4, 5}
	s, err := StridedFrom(unsafe.Pointer(&data[0]), Int32, ShapeOf(2, 2), []int64{3, 2}, &data)
	require.NoError(t, err)
	require.Equal(t, []int32{0, 2, 3, 5}, content(t, s))
	memory := s.Memory()
	require.True(t, memory.Foreign())
	require.NoError(t, s.Retain())
	require.ErrorIs(t, memory.Region().Close(), stepvan.ErrBusy)
	s.Release()
	require.NoError(t, memory.Region().Close())
	require.ErrorIs(t, s.Check(), stepvan.ErrClosed)
	_, ok := s.Contiguous()
	require.False(t, ok)
	to := count(t, 2, 2)
	all := to.Strided()
	require.ErrorIs(t, all.CopyFrom(&s), stepvan.ErrClosed)
	require.ErrorIs(t, s.CopyFrom(&all), stepvan.ErrClosed)
}

// Narrow and Transpose in any order give the elements that indices of the whole say.
func TestStridedPartsOfParts(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 3))
		dims := make([]int64, 1+r.IntN(4))
		for i := range dims {
			dims[i] = 1 + int64(r.IntN(5))
		}
		x := count(t, dims...)
		s := x.Strided()
		from, names := make([]int64, len(dims)), make([]int, len(dims)) // of the view, in dimensions of the whole
		for i := range names {
			names[i] = i
		}
		for range 4 {
			d := r.IntN(len(dims))
			if r.IntN(2) == 0 {
				e := r.IntN(len(dims))
				other, err := s.Transpose(d, e)
				require.NoError(t, err)
				s = other
				names[d], names[e] = names[e], names[d]
				continue
			}
			have := s.Dims()[d]
			lo := int64(r.IntN(int(have)))
			part, err := s.Narrow(d, lo, 1+int64(r.IntN(int(have-lo))))
			require.NoError(t, err)
			s = part
			from[names[d]] += lo
		}
		var want []int32
		index := make([]int64, len(dims))
		for i := range content(t, s) {
			rest := int64(i)
			for d := len(dims) - 1; d >= 0; d-- {
				index[d] = rest % s.Dims()[d]
				rest /= s.Dims()[d]
			}
			at := int64(0)
			for whole, n := range dims {
				at = at*n + from[whole] + index[slices.Index(names, whole)]
			}
			want = append(want, int32(at))
		}
		require.Equal(t, want, content(t, s), "seed %d", seed)
	}
}

func TestStridedCopiesAllocateNothing(t *testing.T) {
	x, y := count(t, 64, 64), count(t, 64, 64)
	a, b := x.Strided(), y.Strided()
	b, err := b.Transpose(0, 1)
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		if a.CopyFrom(&b) != nil {
			t.Fail()
		}
	}))
}
