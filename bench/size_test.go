package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{
		"8": 8, "0": 0, "4KiB": 4096, "1.75MiB": 1835008, " 0.5 KiB ": 512, "896KiB": 917504, "1GiB": 1 << 30, "12B": 12, "12.0B": 12, "4k": 4096,
	} {
		got, err := ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := ParseSize(got.String())
		require.NoError(t, err, got.String())
		require.Equal(t, got, again, "%q is written as %q", text, got.String())
	}
	for _, text := range []string{"", "x", "-1", "-1KiB", "1.3", "0.3B", "1.0001KiB", "NaNMiB", "1e30GiB", "8 apples"} {
		_, err := ParseSize(text)
		require.ErrorIs(t, err, stepvan.ErrInvalid, text)
	}
	require.Equal(t, "1.75MiB", Size(1835008).String())
	require.Equal(t, "1025B", Size(1025).String())
}

func FuzzParseSize(f *testing.F) {
	f.Add("1.75MiB")
	f.Add("1e300GiB")
	f.Fuzz(func(t *testing.T, text string) {
		size, err := ParseSize(text)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, size, Size(0))
		again, err := ParseSize(size.String())
		require.NoError(t, err)
		require.Equal(t, size, again)
	})
}
