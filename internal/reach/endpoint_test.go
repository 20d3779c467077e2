package reach

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
)

// 64 peers that all have connections with each other take less than half a GiB for them.
func TestConnectionsOfPeersAreSmall(t *testing.T) {
	s := config.Default()
	s.Role = stepvan.RolePeer
	require.LessOrEqual(t, 64*63*SideBytes(&s), config.Bytes(512<<20))
	require.EqualValues(t, 512, grantsOf(&s, stepvan.RolePeer))
	require.EqualValues(t, 4096, grantsOf(&s, stepvan.RoleServer))
	s.Grants = 64
	require.EqualValues(t, leastGrants, grantsOf(&s, stepvan.RolePeer))
}
