package tensor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestShapes(t *testing.T) {
	for _, c := range []struct {
		dims  []int64
		elems int64
		text  string
	}{
		{nil, 1, "[]"},
		{[]int64{0}, 0, "[0]"},
		{[]int64{7}, 7, "[7]"},
		{[]int64{128, 7168}, 917504, "[128 7168]"},
		{[]int64{1, 2, 3, 4, 5, 6, 7, 8}, 40320, "[1 2 3 4 5 6 7 8]"},
		{[]int64{math.MaxInt64}, math.MaxInt64, "[9223372036854775807]"},
		{[]int64{1 << 40, 0, 1 << 40}, 0, "[1099511627776 0 1099511627776]"},
	} {
		s, err := MakeShape(c.dims...)
		require.NoError(t, err)
		require.True(t, s.Valid())
		require.Equal(t, s, ShapeOf(c.dims...))
		require.Equal(t, len(c.dims), s.Rank())
		n, ok := s.Elems()
		require.True(t, ok)
		require.Equal(t, c.elems, n)
		require.Equal(t, c.text, s.String())
		require.Equal(t, append([]int64{9}, c.dims...), append([]int64{9}, s.Dims()...))
		for i, d := range c.dims {
			require.Equal(t, d, s.Dim(i))
		}
		require.Zero(t, s.Dim(-1))
		require.Zero(t, s.Dim(len(c.dims)))
	}
}

func TestNoShape(t *testing.T) {
	for _, c := range []struct {
		dims []int64
		want string
	}{
		{[]int64{-1}, "dimension 0 of a shape is -1"},
		{[]int64{0, -1}, "dimension 1 of a shape is -1"},
		{[]int64{1, 1, 1, 1, 1, 1, 1, 1, 1}, "at most 8 dimensions, not 9"},
		{[]int64{1 << 32, 1 << 31}, "63 bits"},
		{[]int64{math.MaxInt64, math.MaxInt64, math.MaxInt64}, "63 bits"},
	} {
		s, err := MakeShape(c.dims...)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, c.want)
		require.Equal(t, s, ShapeOf(c.dims...))
		require.False(t, s.Valid())
		require.Zero(t, s.Rank())
		require.Equal(t, "[invalid]", s.String())
		_, ok := s.Elems()
		require.False(t, ok)
		_, ok = s.Bytes(Float32)
		require.False(t, ok)
		_, err = FromSlice([]float32{1}, c.dims...)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
	}
}

func TestShapeBytes(t *testing.T) {
	n, ok := ShapeOf(128, 7168).Bytes(BFloat16)
	require.True(t, ok)
	require.Equal(t, int64(1835008), n)
	_, ok = ShapeOf(math.MaxInt64).Bytes(Uint16)
	require.False(t, ok, "the elements can be counted, their bytes cannot")
	_, ok = ShapeOf(1).Bytes(0)
	require.False(t, ok)
}

func TestShapesCompare(t *testing.T) {
	require.Equal(t, map[Shape]int{ShapeOf(2, 3): 1}[ShapeOf(2, 3)], 1)
	require.NotEqual(t, ShapeOf(2), ShapeOf(2, 1))
	require.NotEqual(t, ShapeOf(), ShapeOf(0))
}
