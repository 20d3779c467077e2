package cast

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// view makes a view of a matrix of floats in some type, which begins at 1 and counts.
func view(t testing.TB, d tensor.DType, rows, columns int64) tensor.Strided {
	t.Helper()
	var b []byte
	for i := range rows * columns {
		b = appendElement(b, d, encoded(d, float64(i+1)))
	}
	x, err := tensor.FromBytes(d, tensor.ShapeOf(rows, columns), b)
	require.NoError(t, err)
	return x.Strided()
}

// numbers are the elements of a whole matrix.
func numbers(s *tensor.Strided) (list []float64) {
	memory := s.Memory()
	for i := range memory.Len() / s.DType().Size() {
		list = append(list, valueOf(s.DType(), bitsOf(memory.Bytes(), s.DType(), i)))
	}
	return list
}

func TestCopyBetweenViews(t *testing.T) {
	to, from := view(t, tensor.BFloat16, 3, 4), view(t, tensor.Float32, 2, 3)
	part, err := to.Narrow(1, 1, 2)
	require.NoError(t, err)
	turned, err := from.Transpose(0, 1)
	require.NoError(t, err)
	require.NoError(t, Copy(&part, &turned, Overwrite))
	require.Equal(t, []float64{1, 1, 4, 4, 5, 2, 5, 8, 9, 3, 6, 12}, numbers(&to))
	require.NoError(t, Copy(&part, &turned, Sum))
	require.Equal(t, []float64{1, 2, 8, 4, 5, 4, 10, 8, 9, 6, 12, 12}, numbers(&to))
	require.NoError(t, Divide(&part, 2))
	require.Equal(t, []float64{1, 1, 4, 4, 5, 2, 5, 8, 9, 3, 6, 12}, numbers(&to))
	require.Equal(t, []float64{1, 2, 3, 4, 5, 6}, numbers(&from), "the source stays as it is")
}

// Large views in tiles, of types by way of another one.
func TestCopyOfLargeTransposes(t *testing.T) {
	const rows, columns = 150, 170
	for _, d := range floats {
		to, from := view(t, d, columns, rows), view(t, tensor.Float32, rows, columns)
		require.NoError(t, Divide(&from, rows*columns/2))
		turned, err := from.Transpose(0, 1)
		require.NoError(t, err)
		before := numbers(&to)
		require.NoError(t, Copy(&to, &turned, Max))
		got, source := numbers(&to), numbers(&from)
		for i := range columns {
			for k := range rows {
				x := max(before[i*rows+k], source[k*columns+i])
				if want := valueOf(d, encoded(d, x)); got[i*rows+k] != want && before[i*rows+k] == before[i*rows+k] {
					t.Fatalf("%s [%d %d]: got %g, want %g", d, i, k, got[i*rows+k], want)
				}
			}
		}
	}
}

func TestCopyRefusals(t *testing.T) {
	to, from := view(t, tensor.Float32, 3, 4), view(t, tensor.Float32, 2, 3)
	require.ErrorIs(t, Copy(&to, &from, Overwrite), stepvan.ErrInvalid, "the shape")
	require.ErrorIs(t, Copy(&to, &to, Sum), stepvan.ErrInvalid, "one memory")
	require.ErrorIs(t, Copy(&to, &from, mergeEnd), stepvan.ErrInvalid)
	memory := to.Memory()
	repeated, err := memory.AsStrided(tensor.ShapeOf(2, 3), []int64{0, 1}, 0)
	require.NoError(t, err)
	require.ErrorIs(t, Copy(&repeated, &from, Overwrite), stepvan.ErrInvalid)
	require.ErrorIs(t, Divide(&repeated, 2), stepvan.ErrInvalid)
	require.ErrorIs(t, Divide(&to, 0), stepvan.ErrInvalid)
}

func TestCopyOfNothing(t *testing.T) {
	to, from := view(t, tensor.Float32, 0, 4), view(t, tensor.BFloat16, 0, 4)
	require.NoError(t, Copy(&to, &from, Sum))
}
