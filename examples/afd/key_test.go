package afd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/tensor"
)

func TestKeys(t *testing.T) {
	for _, p := range []chunk{{}, {5, 2, 7}, {maxLayers - 1, maxSlots - 1, maxRanks - 1}} {
		got, ok := parseKey(p.pushKey())
		require.True(t, ok)
		require.Equal(t, p, got)
		for _, server := range []int{0, 1, maxServers - 1} {
			_, ok := parseKey(p.pullKey(server))
			require.False(t, ok, "a pull is no push")
		}
	}
	require.Equal(t, tensor.Key(0x1_0000_0007_0205), chunk{5, 2, 7}.pullKey(0))
	require.NotEqual(t, chunk{5, 2, 7}.pullKey(0), chunk{5, 2, 7}.pullKey(1))
}
