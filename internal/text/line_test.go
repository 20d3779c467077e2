package text

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLine(t *testing.T) {
	require.Equal(t, "a b c?", Line("a\nb\x1bc\xff", 100))
	require.Equal(t, "héé", Line("héé", 5))
	require.LessOrEqual(t, len(Line(strings.Repeat("é", 100), 31)), 31)
}
