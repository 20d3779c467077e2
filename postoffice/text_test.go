package postoffice

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestCrowd(t *testing.T) {
	require.Equal(t, "scheduler, server 0 and worker 1-3", instances([]*member{
		{info: Peer{Role: stepvan.RoleWorker, Rank: 2}}, {info: Peer{Role: stepvan.RoleServer}}, {info: Peer{Role: stepvan.RoleWorker, Rank: 3}}, {info: Peer{Role: stepvan.RoleWorker, Rank: 1}}, {info: Peer{Role: stepvan.RoleScheduler}},
	}))
	require.Empty(t, instances(nil))
}

func TestSeconds(t *testing.T) {
	require.Equal(t, "12 s", seconds(12*time.Second))
	require.Equal(t, "1.6 s", seconds(1620*time.Millisecond))
	require.Equal(t, "13 s", seconds(12700*time.Millisecond))
}
