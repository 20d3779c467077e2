package reach

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A device gives up on a silent peer before the heartbeats do, as far as its timer allows.
func TestAckTimeout(t *testing.T) {
	for heartbeats, want := range map[time.Duration]int{
		0: 0, time.Minute: 14, 1500 * time.Millisecond: 14, 400 * time.Millisecond: 13, 100 * time.Millisecond: 11, time.Millisecond: 8,
	} {
		require.Equal(t, want, ackTimeout(heartbeats), heartbeats)
	}
}
