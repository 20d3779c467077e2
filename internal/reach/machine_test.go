package reach_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/reach"
)

func TestMachine(t *testing.T) {
	for want, list := range map[string][]string{
		"3f2a.1000": {"shm://3f2a.1000/tmp/stepvan-1000/shm.77.1a2b", "tcp://10.0.0.1:7"},
		"3f2b.0":    {"unix://tmp/x", "shm://3f2b.0/tmp/y"},
		"":          {"tcp://10.0.0.1:7", "rdma://10.0.0.1:8"},
	} {
		require.Equal(t, want, reach.Machine(list))
	}
}
