package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// The numbers are part of the wire format: a change here breaks peers.
var wireTypes = []struct {
	d     DType
	value uint8
	name  string
	size  int
	align int
}{
	{Bool, 1, "bool", 1, 1},
	{Uint8, 2, "uint8", 1, 1},
	{Int8, 3, "int8", 1, 1},
	{Uint16, 4, "uint16", 2, 2},
	{Int16, 5, "int16", 2, 2},
	{Uint32, 6, "uint32", 4, 4},
	{Int32, 7, "int32", 4, 4},
	{Uint64, 8, "uint64", 8, 8},
	{Int64, 9, "int64", 8, 8},
	{Float16, 10, "float16", 2, 2},
	{BFloat16, 11, "bfloat16", 2, 2},
	{Float32, 12, "float32", 4, 4},
	{Float64, 13, "float64", 8, 8},
	{Complex32, 14, "complex32", 4, 4},
	{Complex64, 15, "complex64", 8, 4},
	{Complex128, 16, "complex128", 16, 8},
	{Float8E4M3FN, 17, "float8_e4m3fn", 1, 1},
	{Float8E5M2, 18, "float8_e5m2", 1, 1},
	{Float8E4M3FNUZ, 19, "float8_e4m3fnuz", 1, 1},
	{Float8E5M2FNUZ, 20, "float8_e5m2fnuz", 1, 1},
	{Float8E8M0FNU, 21, "float8_e8m0fnu", 1, 1},
	{Float4E2M1FNX2, 22, "float4_e2m1fn_x2", 1, 1},
}

func TestDTypes(t *testing.T) {
	require.Len(t, wireTypes, int(dtypeEnd)-1)
	for _, c := range wireTypes {
		require.Equal(t, c.value, uint8(c.d), c.name)
		require.True(t, c.d.Valid(), c.name)
		require.Equal(t, c.size, c.d.Size(), c.name)
		require.Equal(t, c.align, c.d.Align(), c.name)
		require.Equal(t, c.name, c.d.String())
		for _, name := range []string{c.name, "torch." + c.name} {
			got, err := ParseDType(name)
			require.NoError(t, err)
			require.Equal(t, c.d, got)
		}
	}
}

func TestNoDType(t *testing.T) {
	for _, d := range []DType{0, dtypeEnd, 255} {
		require.False(t, d.Valid())
		require.Zero(t, d.Size())
		require.Zero(t, d.Align())
		require.Contains(t, d.String(), "dtype(")
	}
	for _, name := range []string{"", "float", "Float32", "torch.", "qint8", "dtype(0)"} {
		_, err := ParseDType(name)
		require.ErrorIs(t, err, stepvan.ErrInvalid, name)
	}
}
