package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestWindowShowsOnePieceAfterTheOther(t *testing.T) {
	gone := 0
	w := NewWindow(func() { gone++ })
	first, second := []byte{1, 2, 3, 4}, []byte{5, 6, 7, 8, 9, 10, 11, 12}
	x, err := FromRegion(w.Show(first), 0, Uint8, ShapeOf(4))
	require.NoError(t, err)
	require.Equal(t, first, x.Bytes())
	require.ErrorIs(t, x.Region().Close(), stepvan.ErrNotSupported)
	require.True(t, x.Valid())
	w.Shut()
	w.Shut()
	require.Equal(t, 1, gone)
	require.ErrorIs(t, x.Check(), stepvan.ErrClosed)
	require.Nil(t, x.Bytes())

	y, err := FromRegion(w.Show(second), 4, Uint8, ShapeOf(4))
	require.NoError(t, err)
	require.ErrorIs(t, x.Check(), stepvan.ErrStale)
	require.ErrorIs(t, x.Retain(), stepvan.ErrStale)
	require.Equal(t, []byte{9, 10, 11, 12}, y.Bytes())

	require.NoError(t, y.Retain())
	w.Shut()
	require.Equal(t, 1, gone, "an operation holds it")
	require.Equal(t, []byte{9, 10, 11, 12}, y.Bytes())
	y.Release()
	require.Equal(t, 2, gone)
	require.Nil(t, y.Bytes())
}

func TestWindowDoesNotAllocate(t *testing.T) {
	w := NewWindow(func() {})
	mem := make([]byte, 64)
	shape := ShapeOf(64)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		x, err := FromRegion(w.Show(mem), 0, Uint8, shape)
		if err != nil || x.Retain() != nil {
			t.Fatal(err)
		}
		w.Shut()
		x.Release()
	}))
}
