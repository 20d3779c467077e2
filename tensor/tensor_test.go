package tensor

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func must(t *testing.T) func(Tensor, error) Tensor {
	return func(x Tensor, err error) Tensor {
		t.Helper()
		require.NoError(t, err)
		return x
	}
}

func TestTensorIsSmall(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Tensor{}), uintptr(112))
}

func TestFromSlice(t *testing.T) {
	data := []float32{0, 1, 2, 3, 4, 5}
	x := must(t)(FromSlice(data, 2, 3))
	require.Equal(t, Float32, x.DType())
	require.Equal(t, ShapeOf(2, 3), x.Shape())
	require.Equal(t, 24, x.Len())
	require.Equal(t, "float32[2 3]", x.String())
	require.Nil(t, x.Region())
	require.NoError(t, x.Check())
	require.NoError(t, x.Retain())
	x.Release()

	data[4] = 40
	got, err := As[float32](x)
	require.NoError(t, err)
	require.Equal(t, data, got, "the memory is shared")
	flat := must(t)(FromSlice(data))
	require.Equal(t, ShapeOf(6), flat.Shape())

	_, err = FromSlice(data, 2, 2)
	require.ErrorContains(t, err, "takes 16 bytes, the slice has 24")
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}

func requireType(t *testing.T, d DType) func(Tensor, error) {
	return func(x Tensor, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, d, x.DType())
	}
}

func TestFromSliceOfEveryType(t *testing.T) {
	requireType(t, Bool)(FromSlice([]bool{true}))
	requireType(t, Uint8)(FromSlice([]uint8{1}))
	requireType(t, Int8)(FromSlice([]int8{1}))
	requireType(t, Uint16)(FromSlice([]uint16{1}))
	requireType(t, Int16)(FromSlice([]int16{1}))
	requireType(t, Uint32)(FromSlice([]uint32{1}))
	requireType(t, Int32)(FromSlice([]int32{1}))
	requireType(t, Uint64)(FromSlice([]uint64{1}))
	requireType(t, Int64)(FromSlice([]int64{1}))
	requireType(t, Float32)(FromSlice([]float32{1}))
	requireType(t, Float64)(FromSlice([]float64{1}))
	requireType(t, Complex64)(FromSlice([]complex64{1}))
	requireType(t, Complex128)(FromSlice([]complex128{1}))
}

// Each type is readable as exactly one Go type, bool as two.
func TestAs(t *testing.T) {
	buf := make([]uint64, 2)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&buf[0])), 16)
	as := map[DType]func(Tensor) (int, error){
		Bool: asLen[bool], Uint8: asLen[uint8], Int8: asLen[int8], Uint16: asLen[uint16], Int16: asLen[int16],
		Uint32: asLen[uint32], Int32: asLen[int32], Uint64: asLen[uint64], Int64: asLen[int64],
		Float32: asLen[float32], Float64: asLen[float64], Complex64: asLen[complex64], Complex128: asLen[complex128],
	}
	for _, w := range wireTypes {
		n := 16 / w.size
		x := must(t)(FromBytes(w.d, ShapeOf(int64(n)), b))
		for g, read := range as {
			got, err := read(x)
			fits := g == w.d || g == w.d.storage() || w.d == Bool && g == Uint8
			if !fits {
				require.ErrorIs(t, err, stepvan.ErrInvalid, "%s as %s", w.d, g)
				continue
			}
			require.NoError(t, err, "%s as %s", w.d, g)
			require.Equal(t, n, got)
		}
	}
	require.Equal(t, Uint16, BFloat16.storage())
	require.Equal(t, Uint8, Float8E4M3FN.storage())
	require.Equal(t, Uint32, Complex32.storage())
}

func asLen[T Element](x Tensor) (int, error) {
	s, err := As[T](x)
	return len(s), err
}

func TestFromBytesRefuses(t *testing.T) {
	buf := make([]uint64, 2)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&buf[0])), 16)
	for name, c := range map[string]struct {
		d     DType
		shape Shape
		b     []byte
		want  string
	}{
		"no type":       {0, ShapeOf(4), b, "not an element type"},
		"no shape":      {Float32, ShapeOf(-1), b, "shape is invalid"},
		"overflow":      {Float32, ShapeOf(1 << 62), b, "63 bits"},
		"too few":       {Float32, ShapeOf(5), b, "takes 20 bytes, the slice has 16"},
		"too many":      {Float32, ShapeOf(3), b, "takes 12 bytes, the slice has 16"},
		"not aligned":   {Float32, ShapeOf(3), b[2:14], "not aligned to the 4 bytes"},
		"not aligned 2": {BFloat16, ShapeOf(1), b[1:3], "not aligned to the 2 bytes"},
	} {
		_, err := FromBytes(c.d, c.shape, c.b)
		require.ErrorIs(t, err, stepvan.ErrInvalid, name)
		require.ErrorContains(t, err, c.want, name)
	}
	must(t)(FromBytes(Complex64, ShapeOf(1), b[4:12]))
	must(t)(FromBytes(Float8E5M2, ShapeOf(3), b[1:4]))
}

func TestSlice(t *testing.T) {
	x := must(t)(FromSlice([]int32{0, 1, 2, 3, 4, 5, 6, 7}, 4, 2))
	y := must(t)(x.Slice(1, 3))
	require.Equal(t, ShapeOf(2, 2), y.Shape())
	require.Equal(t, int64(8), y.Offset())
	got, err := As[int32](y)
	require.NoError(t, err)
	require.Equal(t, []int32{2, 3, 4, 5}, got)
	require.Equal(t, 4, cap(got), "no access past the view")
	require.Equal(t, 16, cap(y.Bytes()))

	z := must(t)(y.Slice(1, 2))
	require.Equal(t, int64(16), z.Offset())
	empty := must(t)(x.Slice(4, 4))
	require.Equal(t, ShapeOf(0, 2), empty.Shape())
	require.NotNil(t, empty.Bytes())
	require.Empty(t, empty.Bytes())
	must(t)(empty.Slice(0, 0))

	for _, c := range [][2]int64{{-1, 1}, {2, 1}, {0, 5}, {5, 5}} {
		_, err := x.Slice(c[0], c[1])
		require.ErrorIs(t, err, stepvan.ErrInvalid, c)
		require.ErrorContains(t, err, "4 rows")
	}
	_, err = must(t)(x.View(ShapeOf(8))).Slice(0, 9)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	scalar := must(t)(must(t)(FromSlice([]int8{1})).View(ShapeOf()))
	_, err = scalar.Slice(0, 1)
	require.ErrorContains(t, err, "scalar")
}

func TestView(t *testing.T) {
	x := must(t)(FromSlice([]int32{0, 1, 2, 3, 4, 5}, 3, 2))
	y := must(t)(must(t)(x.Slice(1, 3)).View(ShapeOf(4)))
	got, err := As[int32](y)
	require.NoError(t, err)
	require.Equal(t, []int32{2, 3, 4, 5}, got)
	for _, s := range []Shape{ShapeOf(5), ShapeOf(), ShapeOf(-1), ShapeOf(0)} {
		_, err := x.View(s)
		require.ErrorIs(t, err, stepvan.ErrInvalid, s)
	}
}

func TestReinterpret(t *testing.T) {
	x := must(t)(FromSlice([]uint16{0x3f80}))
	y := must(t)(x.Reinterpret(BFloat16))
	require.Equal(t, "bfloat16[1]", y.String())
	got, err := As[uint16](y)
	require.NoError(t, err)
	require.Equal(t, []uint16{0x3f80}, got)
	for _, d := range []DType{Float32, Uint8, 0} {
		_, err := x.Reinterpret(d)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
	}
	c := make([]complex64, 2)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&c[0])), 16)
	off4 := must(t)(FromBytes(Complex64, ShapeOf(1), b[4:12]))
	_, err = off4.Reinterpret(Float64)
	require.ErrorIs(t, err, stepvan.ErrInvalid, "complex64 needs 4 bytes of alignment, float64 needs 8")
}

func TestZeroTensor(t *testing.T) {
	var x Tensor
	require.False(t, x.Valid())
	require.Equal(t, "no tensor", x.String())
	require.Nil(t, x.Bytes())
	require.ErrorIs(t, x.Check(), stepvan.ErrInvalid)
	require.ErrorIs(t, x.Retain(), stepvan.ErrInvalid)
	x.Release()
	_, err := x.Slice(0, 0)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, err = x.View(Shape{})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, err = x.Reinterpret(Bool)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, err = As[float32](x)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}
