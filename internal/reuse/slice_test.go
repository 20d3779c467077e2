package reuse_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/reuse"
)

func TestEmptiedSlicesHoldNothing(t *testing.T) {
	for n := range 4 {
		s := make([]*int, n, 8)
		for i := range s {
			s[i] = new(int)
		}
		got := reuse.Slice(s)
		require.Empty(t, got)
		require.Equal(t, 8, cap(got))
		require.Equal(t, make([]*int, 8), got[:8])
	}
}
