package reach

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
)

func TestVisitorLimitFollowsClusterAndDescriptors(t *testing.T) {
	for _, c := range []struct {
		workers, servers, peers, rails int
		files                          uint64
		want                           int
	}{
		{2, 1, 0, 1, 1 << 20, 3 + 256},
		{2, 1, 0, 1, 256, 32},
		{2, 1, 0, 1, 0, 3},
		{40, 10, 0, 1, 256, 50},
		{40, 10, 0, 4, 1024, 200},
		{0, 0, 50, 4, 1024, 200},
		{20, 10, 20, 4, 1024, 200},
		{1000, 1000, 0, 16, 1 << 20, 32256},
		{1 << 20, 1, 0, 16, 1<<64 - 1, 1 << 16},
	} {
		s := config.Default()
		s.NumWorker, s.NumServer, s.NumPeer, s.Rails = c.workers, c.servers, c.peers, c.rails
		require.Equal(t, c.want, visitorLimit(&s, c.files), "%+v", c)
	}
}
