package launch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{
		"2w2s": {2, 2, 0}, "8w4s": {8, 4, 0}, "4s8w": {8, 4, 0}, "3w": {3, 0, 0}, "3s": {0, 3, 0},
		"w": {1, 0, 0}, "ws": {1, 1, 0}, "w10s": {1, 10, 0}, "0w1s": {0, 1, 0}, "1000000w": {maxNodes, 0, 0},
		"4p": {0, 0, 4}, "p": {0, 0, 1}, "2w2s4p": {2, 2, 4}, "4p2w": {2, 0, 4}, "0w0s2p": {0, 0, 2}, "1000000p": {0, 0, maxNodes},
	} {
		got, err := ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestParseSizeSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "is empty: write counts of workers and servers, like 2w2s, or of peers, like 4p",
		"2":                     "2 of what? Write 2w for workers, 2s for servers or 2p for peers",
		"2w2":                   "2 of what?",
		"2w3w":                  "has the letter w twice",
		"2x":                    `"2x" is not a count with w (workers), s (servers) or p (peers)`,
		"2 w":                   `"2 w" is not a count`,
		"2w,2s":                 `",2s" is not a count`,
		"-1w":                   `"-1w" is not a count`,
		"0w0s0p":                "has no nodes",
		"1p2w3p":                "has the letter p twice",
		"1000001w":              "are too many",
		"99999999999999999999w": "are too many",
	} {
		got, err := ParseSize(text)
		require.ErrorContains(t, err, want, text)
		require.Zero(t, got, text)
	}
}

func TestSizeIsAFlag(t *testing.T) {
	s := Size{Workers: 1, Servers: 1}
	require.Error(t, s.Set("nonsense"))
	require.Equal(t, Size{Workers: 1, Servers: 1}, s, "a mistake changes nothing")
	require.NoError(t, s.Set("2w3s"))
	require.Equal(t, "2w3s", s.String())
	require.Equal(t, "SIZE", s.Type())
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"2w2s", "w", "9s8w", "4p", "1w2s3p", "2x", "", "1w1w"} {
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
