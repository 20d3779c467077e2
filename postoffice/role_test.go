package postoffice

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

func TestRoleText(t *testing.T) {
	for _, r := range roles {
		f := encode(opJoin, 0, joinBody{Role: r})
		require.Contains(t, string(f.body), `"role":"`+string(r)+`"`)
		var back joinBody
		err := decode(f, &back)
		require.Equal(t, r, back.Role)
		require.Equal(t, r == stepvan.RoleScheduler, err != nil, "%v", err)
	}
	for _, r := range []stepvan.Role{stepvan.RoleJoint, "", "boss"} {
		unknown := fmt.Sprintf("unknown role %q", string(r))
		for _, m := range []struct{ sent, into any }{
			{joinBody{Role: r}, &joinBody{}},
			{startBody{Self: Peer{ID: 2, Role: r}, Epoch: 1}, &startBody{}},
			{peersBody{Nodes: []Peer{{ID: 2, Role: r}}}, &peersBody{}},
			{goneBody{Nodes: []goneNode{{ID: 2, Role: r}}}, &goneBody{}},
		} {
			require.ErrorContains(t, decode(encode(opJoin, 0, m.sent), m.into), unknown)
		}
	}
}

func TestGroup(t *testing.T) {
	require.Equal(t, "scheduler, servers and workers", (GroupScheduler | GroupServers | GroupWorkers).String())
	require.Equal(t, "servers, workers and peers", GroupNodes.String())
	require.Equal(t, "nobody", Group(0).String())
	require.EqualValues(t, []Group{1, 2, 4, 8}, []Group{GroupScheduler, GroupServers, GroupWorkers, GroupPeers}, "the first three as in ps-lite")
	require.False(t, groupAll.Has(""))
	require.False(t, groupAll.Has(stepvan.RoleJoint))
}

func TestNodeIDsAreDistinct(t *testing.T) {
	seen := map[wire.PeerID]bool{0: true, SchedulerID: true}
	for _, rank := range []stepvan.Rank{0, 1, 2, 30, 31, 32, 63, 64, 100_000, maxRank - 1, maxRank} {
		for _, r := range roles[1:] {
			id := nodeID(r, rank)
			require.False(t, seen[id], "%s %d", r, rank)
			seen[id] = true
		}
	}
	require.Equal(t, SchedulerID, nodeID(stepvan.RoleScheduler, 0))
}

func TestNodeNames(t *testing.T) {
	require.Equal(t, "worker 3 (host a, pid 7)", Peer{Role: stepvan.RoleWorker, Rank: 3, Host: "a", PID: 7}.String())
	require.Equal(t, "server (host a)", Peer{Role: stepvan.RoleServer, Rank: AnyRank, Host: "a"}.String())
	require.Equal(t, "scheduler", Peer{Role: stepvan.RoleScheduler}.String())
}
