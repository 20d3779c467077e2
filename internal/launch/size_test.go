package launch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{
		"2w2s": {2, 2}, "8w4s": {8, 4}, "4s8w": {8, 4}, "3w": {3, 0}, "3s": {0, 3},
		"w": {1, 0}, "ws": {1, 1}, "w10s": {1, 10}, "0w1s": {0, 1}, "1000000w": {maxNodes, 0},
	} {
		got, err := ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestParseSizeSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "is empty: write counts of workers and servers, like 2w2s",
		"2":                     "2 of what? Write 2w for workers or 2s for servers",
		"2w2":                   "2 of what?",
		"2w3w":                  "has the letter w twice",
		"2x":                    `"2x" is not a count with w (workers) or s (servers)`,
		"2 w":                   `"2 w" is not a count`,
		"2w,2s":                 `",2s" is not a count`,
		"-1w":                   `"-1w" is not a count`,
		"0w0s":                  "has no nodes",
		"1000001w":              "are too many",
		"99999999999999999999w": "are too many",
	} {
		got, err := ParseSize(text)
		require.ErrorContains(t, err, want, text)
		require.Zero(t, got, text)
	}
}

func TestSizeIsAFlag(t *testing.T) {
	s := Size{1, 1}
	require.Error(t, s.Set("nonsense"))
	require.Equal(t, Size{1, 1}, s, "a mistake changes nothing")
	require.NoError(t, s.Set("2w3s"))
	require.Equal(t, "2w3s", s.String())
	require.Equal(t, "SIZE", s.Type())
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"2w2s", "w", "9s8w", "2x", "", "1w1w"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSize(text)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		again, err := ParseSize(s.String())
		require.NoError(t, err)
		require.Equal(t, s, again)
	})
}
