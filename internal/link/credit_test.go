package link

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAMessageOfAnySizeLeavesRoomForOthers(t *testing.T) {
	const window = 1000
	require.Equal(t, uint64(0), charge(0, window))
	require.Equal(t, uint64(499), charge(499, window))
	require.Equal(t, uint64(500), charge(500, window))
	require.Equal(t, uint64(500), charge(1<<40, window))
}
