package ps_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
)

// Nodes of all roles find each other on the board.
func TestBoardOfAllRoles(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{workers: 2, servers: 1, peers: 2})
			each(t, c.all, func(n *ps.Node) error {
				if err := n.Board().Post(limited(t), "meet/"+n.String(), []byte(n.String())); err != nil {
					return err
				}
				all, err := n.Board().Watch(limited(t), "meet/", func(all []ps.Entry) bool { return len(all) == len(c.all) })
				for _, e := range all {
					if e.Key != "meet/"+e.Owner.Name() || string(e.Value) != e.Owner.Name() {
						return fmt.Errorf("%+v", e)
					}
				}
				return err
			})
			require.NoError(t, c.peers[0].Board().Remove(limited(t), "meet/peer 0"))
			all, err := c.scheduler.Board().Watch(limited(t), "meet/peer", nil)
			require.NoError(t, err)
			require.Len(t, all, 1)
			c.stop()
			require.ErrorIs(t, c.peers[0].Board().Post(limited(t), "a", nil), stepvan.ErrClosed)
			require.ErrorIs(t, c.scheduler.Board().Remove(limited(t), "a"), stepvan.ErrClosed)
		})
	}
}

// The first node that posts a key has it.
func TestOneNodeWinsAKey(t *testing.T) {
	c := start(t, overMem(), shape{peers: 4})
	lost := make(chan error, len(c.peers))
	each(t, c.peers, func(n *ps.Node) error { lost <- n.Board().Post(limited(t), "leader", nil); return nil })
	all, err := c.scheduler.Board().Watch(limited(t), "leader", nil)
	require.NoError(t, err)
	require.Len(t, all, 1)
	winners := 0
	for range c.peers {
		err := <-lost
		if err == nil {
			winners++
			continue
		}
		var op *stepvan.OpError
		require.ErrorAs(t, err, &op)
		require.ErrorIs(t, err, stepvan.ErrRemote)
		require.Equal(t, all[0].Owner.Name(), op.Peer)
	}
	require.Equal(t, 1, winners)
	c.stop()
}

// Entries go with a node that dies. In lock-step the death of a worker ends the watches of workers and servers, with an
// error that names it. Those of peers continue.
func TestTheBoardAfterADeath(t *testing.T) {
	c := start(t, overMem(), shape{workers: 2, servers: 1, peers: 2})
	require.NoError(t, c.workers[1].Board().Post(limited(t), "a", nil))
	require.NoError(t, c.peers[1].Board().Post(limited(t), "b", nil))
	never := func([]ps.Entry) bool { return false }
	type end struct {
		keys []string
		err  error
	}
	of := func(n *ps.Node, until func([]ps.Entry) bool) chan end {
		done, begun := make(chan end, 1), make(chan struct{}, 1)
		go func() {
			all, err := n.Board().Watch(limited(t), "", func(all []ps.Entry) bool {
				select {
				case begun <- struct{}{}:
				default:
				}
				return until(all)
			})
			var keys []string
			for _, e := range all {
				keys = append(keys, e.Key)
			}
			done <- end{keys, err}
		}()
		<-begun
		return done
	}
	one := func(all []ps.Entry) bool { return len(all) == 1 }
	worker, server, peer := of(c.workers[0], never), of(c.servers[0], never), of(c.peers[0], one)
	require.NoError(t, c.workers[1].Close())
	for _, done := range []chan end{worker, server} {
		e := <-done
		require.ErrorIs(t, e.err, stepvan.ErrPeerLost)
		require.ErrorContains(t, e.err, "worker 1")
	}
	require.Equal(t, end{keys: []string{"b"}}, <-peer)
	require.ErrorContains(t, c.workers[0].Board().Post(limited(t), "c", nil), "worker 1")

	none := of(c.peers[0], func(all []ps.Entry) bool {
		return !slices.ContainsFunc(all, func(e ps.Entry) bool { return e.Key == "b" })
	})
	require.NoError(t, c.peers[1].Close())
	require.NoError(t, (<-none).err)
	require.NoError(t, c.peers[0].Board().Post(limited(t), "b", nil), "the key is free")
}

func TestAJointNodePostsAsItsWorker(t *testing.T) {
	c := start(t, overMem(), shape{workers: 1, servers: 1, joint: true})
	require.NoError(t, c.workers[0].Board().Post(limited(t), "a", nil))
	all, err := c.scheduler.Board().Watch(limited(t), "", nil)
	require.NoError(t, err)
	require.Equal(t, "worker 0", all[0].Owner.Name())
	c.stop()
}
