package text

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestCut(t *testing.T) {
	for _, short := range []string{"", "layer 3", strings.Repeat("x", longest)} {
		require.Equal(t, short, Cut(short))
	}
	require.Equal(t, strings.Repeat("x", longest)+"... (200000 bytes)", Cut(strings.Repeat("x", 200_000)))
	runes := Cut("x" + strings.Repeat("\u00e9", 200))
	require.True(t, utf8.ValidString(runes), "a character is not cut in two")
	require.True(t, strings.HasSuffix(runes, "\u00e9... (401 bytes)"), runes)
	require.Less(t, len(Cut(strings.Repeat("\x80", 1000))), 2*longest, "bytes that are no text are cut as well")
}
