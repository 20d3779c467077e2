package postoffice

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

func TestRoleText(t *testing.T) {
	for r := RoleScheduler; r < roleEnd; r++ {
		b, err := json.Marshal(r)
		require.NoError(t, err)
		var back Role
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, r, back)
	}
	_, err := json.Marshal(Role(0))
	require.Error(t, err)
	var r Role
	require.Error(t, json.Unmarshal([]byte(`"joint"`), &r))
	require.Equal(t, "role 9", Role(9).String())
}

func TestGroup(t *testing.T) {
	require.Equal(t, "scheduler, servers and workers", (GroupScheduler | GroupServers | GroupWorkers).String())
	require.Equal(t, "nobody", Group(0).String())
	require.EqualValues(t, []Group{1, 2, 4}, []Group{GroupScheduler, GroupServers, GroupWorkers}, "as in ps-lite")
	require.False(t, groupAll.Has(0))
	require.False(t, groupAll.Has(roleEnd))
}

func TestNodeIDsAreDistinct(t *testing.T) {
	seen := map[wire.PeerID]bool{0: true, SchedulerID: true}
	for _, rank := range []stepvan.Rank{0, 1, 2, 30, 31, 32, 63, 64, 100_000, maxRank - 1, maxRank} {
		for r := RoleServer; r < roleEnd; r++ {
			id := nodeID(r, rank)
			require.False(t, seen[id], "%s %d", r, rank)
			seen[id] = true
		}
	}
	require.Equal(t, SchedulerID, nodeID(RoleScheduler, 0))
}

func TestNodeNames(t *testing.T) {
	require.Equal(t, "worker 3 (host a, pid 7)", Peer{Role: RoleWorker, Rank: 3, Host: "a", PID: 7}.String())
	require.Equal(t, "server (host a)", Peer{Role: RoleServer, Rank: AnyRank, Host: "a"}.String())
	require.Equal(t, "scheduler", Peer{Role: RoleScheduler}.String())
}
