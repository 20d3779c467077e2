package ps_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
)

// Peers start, know each other, meet and stop over every van, alone and beside workers and servers.
func TestPeers(t *testing.T) {
	defer goleak.VerifyNone(t)
	for name, s := range map[string]shape{
		"one alone": {peers: 1}, "alone": {peers: 4}, "in nodes of two": {peers: 2, group: 2}, "beside others": {workers: 2, servers: 1, peers: 3},
	} {
		for _, van := range vans() {
			t.Run(name+"/"+van.name, func(t *testing.T) {
				c := start(t, van, s)
				all := len(c.peers)
				for i, n := range c.peers {
					require.Equal(t, ps.RolePeer, n.Role())
					require.EqualValues(t, i, n.Rank())
					require.Len(t, n.Peers(), all-1)
					for _, p := range n.Peers() {
						require.Equal(t, ps.RolePeer, p.Role)
						require.NotEqual(t, n.Rank(), p.Rank)
						require.NotEmpty(t, p.Addresses, "%s listens", p)
					}
					require.Nil(t, n.Worker())
					require.Nil(t, n.Server())
				}
				for _, n := range append(c.workers, c.servers...) {
					for _, p := range n.Peers() {
						require.NotEqual(t, ps.RolePeer, p.Role)
					}
				}
				require.Len(t, c.scheduler.Peers(), all+len(c.workers)+len(c.servers))
				for _, perInstance := range []bool{true, false} {
					each(t, c.peers, func(n *ps.Node) error { return n.Barrier(limited(t), ps.Peers, perInstance) })
				}
				group := ps.Peers | ps.Scheduler
				if len(c.workers) > 0 {
					group |= ps.Workers | ps.Servers
				}
				each(t, c.all, func(n *ps.Node) error { return n.Barrier(limited(t), group, true) })
				c.stop()
			})
		}
	}
}

// One instance of each node is enough for a barrier per node.
func TestABarrierOfPeersPerNode(t *testing.T) {
	c := start(t, overMem(), shape{peers: 2, group: 2})
	each(t, []*ps.Node{c.peers[0], c.peers[3]}, func(n *ps.Node) error { return n.Barrier(limited(t), ps.Peers, false) })
	c.stop()
}

func TestPeersAreNeitherWorkersNorServers(t *testing.T) {
	c := start(t, overMem(), shape{peers: 2})
	for _, op := range operations {
		err := op.call(limited(t), c.peers[0])
		require.ErrorIs(t, err, stepvan.ErrInvalid, op.name)
		require.ErrorContains(t, err, "peer")
	}
	require.ErrorContains(t, c.peers[0].Barrier(limited(t), ps.Workers|ps.Servers, true), "the caller is not in the group (got a peer)")
	c.stop()
}

// What does not fit the cluster is refused, and the error names the setting.
func TestRefusedPeers(t *testing.T) {
	for name, c := range map[string]struct {
		shape shape
		who   string
		edit  func(*ps.Settings)
		want  string
	}{
		"another number":    {shape{peers: 2}, "peer 1", func(s *ps.Settings) { s.NumPeer = 3 }, `STEPVAN_NUM_PEER is "3" at the node and "2" at the scheduler: set the same value on every node`},
		"the same rank":     {shape{peers: 2}, "peer 1", func(s *ps.Settings) { s.NodeRank = 0 }, "peer rank 0 is taken by peer 0"},
		"none in cluster":   {shape{workers: 1, servers: 1}, "worker 0", func(s *ps.Settings) { s.Role, s.NumPeer = ps.RolePeer, 1 }, `STEPVAN_NUM_PEER is "1" at the node and "0" at the scheduler`},
		"no number":         {shape{peers: 2}, "peer 1", func(s *ps.Settings) { s.NumPeer = 0 }, "STEPVAN_NUM_PEER: must be at least 1 where DMLC_ROLE is peer"},
		"a role for itself": {shape{peers: 2}, "peer 1", func(s *ps.Settings) { s.Role = "peers" }, `DMLC_ROLE: must be one of worker, server, scheduler, joint, peer; did you mean peer?`},
	} {
		t.Run(name, func(t *testing.T) {
			c.shape.each = map[string]func(*ps.Settings){c.who: c.edit}
			settings, opts := c.shape.settings(overTCP)
			_, err := ps.StartAll(limited(t), settings, opts...)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// In lock-step the death of a peer leaves the work of workers and servers alone.
func TestTheDeathOfAPeerEndsNoLockStep(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{workers: 2, servers: 1, peers: 3})
			served := make(chan error, 1)
			go func() { served <- serve(limited(t), c.servers[0]) }()
			require.NoError(t, c.peers[1].Close())
			for _, n := range []*ps.Node{c.peers[0], c.peers[2]} {
				err := n.Barrier(limited(t), ps.Peers, true)
				require.ErrorIs(t, err, stepvan.ErrPeerLost)
				require.ErrorContains(t, err, "peer 1")
				require.NoError(t, n.Err())
			}
			each(t, c.workers, func(n *ps.Node) error { return work(limited(t), n, 4096, 20) })
			each(t, append(c.workers, c.servers...), func(n *ps.Node) error { return n.Barrier(limited(t), ps.Workers|ps.Servers, true) })
			c.stop()
			require.NoError(t, <-served)
		})
	}
}

// In lock-step the death of a worker or server ends the work of all of them, and leaves that of peers alone.
func TestPeersOutliveALockStep(t *testing.T) {
	for _, van := range vans() {
		for _, victim := range []string{"worker 1", "server 0"} {
			t.Run(van.name+"/"+victim, func(t *testing.T) {
				c := start(t, van, shape{workers: 2, servers: 2, peers: 2})
				dead, others := c.workers[1], append([]*ps.Node{c.workers[0]}, c.servers...)
				if victim == "server 0" {
					dead, others = c.servers[0], append([]*ps.Node{c.servers[1]}, c.workers...)
				}
				require.NoError(t, dead.Close())
				for _, n := range others {
					<-n.Done()
					require.ErrorContains(t, n.Err(), victim)
				}
				each(t, c.peers, func(n *ps.Node) error { return passBarriers(limited(t), n) })
				for _, n := range c.peers {
					require.NoError(t, n.Err())
				}
				rest := make(chan error, len(others))
				for _, n := range others {
					go func() { rest <- n.Stop(limited(t)) }()
				}
				each(t, append(c.peers, c.scheduler), func(n *ps.Node) error { return n.Stop(limited(t)) })
				for range others {
					require.ErrorContains(t, <-rest, victim)
				}
			})
		}
	}
}

func TestPeersAreWaitedForByName(t *testing.T) {
	settings, opts := shape{workers: 1, servers: 1, peers: 3, edit: soon}.settings(overMem())
	_, err := ps.StartAll(limited(t), settings[:3], opts...) // without two of the peers and the worker
	require.ErrorContains(t, err, "peer 1-2 and worker 0: not registered yet")
	require.True(t, strings.Contains(err.Error(), "STEPVAN_NUM_PEER"), err)
}
