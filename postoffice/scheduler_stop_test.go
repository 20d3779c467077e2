package postoffice

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func (n *node) stopping(ctx context.Context) chan error {
	done := make(chan error, 1)
	go func() { done <- n.Stop(ctx) }()
	return done
}

func TestStopWaitsForAllThatLive(t *testing.T) {
	inCluster(t, beating, func(t *testing.T, c *cluster) {
		c.started()
		sched := make(chan error, 1)
		go func() { sched <- c.s.Stop(t.Context()) }() // first, and waits
		var stops []chan error
		for _, n := range c.nodes[:3] {
			stops = append(stops, n.stopping(t.Context()))
		}
		time.Sleep(time.Hour)
		c.pending(append(stops, sched)...)
		require.Contains(t, c.nodes[0].log.text(), "still working")
		stops = append(stops, c.nodes[3].stopping(t.Context()))
		for _, s := range stops {
			require.NoError(t, <-s)
		}
		require.NoError(t, <-sched)
		require.NoError(t, c.s.Stop(t.Context()))
		for _, n := range c.nodes {
			<-n.Done()
			require.NoError(t, n.Err())
			require.NoError(t, n.Stop(t.Context()), "twice")
			require.ErrorIs(t, n.Barrier(t.Context(), GroupNodes, true), stepvan.ErrClosed)
			require.ErrorContains(t, n.Barrier(t.Context(), GroupNodes, true), "this node has stopped")
			require.Empty(t, n.deadNodes())
			require.Empty(t, n.leftNodes())
		}
		require.ErrorIs(t, c.s.Barrier(t.Context(), GroupNodes|GroupScheduler, true), stepvan.ErrClosed)
	})
}

func TestStopDoesNotWaitForTheDead(t *testing.T) {
	inCluster(t, beating, func(t *testing.T, c *cluster) {
		c.started()
		var stops []chan error
		for _, n := range c.nodes[:3] {
			stops = append(stops, n.stopping(t.Context()))
		}
		c.pending(stops...)
		begun := time.Now()
		c.nodes[3].pipe.silence()
		for _, s := range stops {
			require.NoError(t, <-s)
		}
		require.NoError(t, c.s.Stop(t.Context()))
		require.LessOrEqual(t, time.Since(begun), 2*time.Second)
	})
}

func TestStopWithALimitLeavesWithoutTheOthers(t *testing.T) {
	inCluster(t, beating, func(t *testing.T, c *cluster) {
		c.started()
		err := c.find(stepvan.RoleWorker, 0).Stop(within(4 * time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "server 0-1 and worker 1, still working")
		time.Sleep(gather)
		synctest.Wait()
		require.Equal(t, []string{"worker 0"}, c.find(stepvan.RoleWorker, 1).leftNodes())
	})
}

func TestStopEndsBarriersOfThisNode(t *testing.T) {
	inCluster(t, beating, func(t *testing.T, c *cluster) {
		c.started()
		n := c.nodes[0]
		j := n.barrier(t.Context(), GroupNodes, true)
		c.pending(j)
		s := n.stopping(t.Context())
		require.ErrorIs(t, <-j, stepvan.ErrClosed)
		c.pending(s)
	})
}

func TestSchedulerStopBeforeTheStart(t *testing.T) {
	inCluster(t, beating, func(t *testing.T, c *cluster) {
		j := c.office(stepvan.RoleWorker, 0, nil).join(t.Context())
		c.pending(j)
		require.NoError(t, c.s.Stop(t.Context()))
		err := <-j
		require.ErrorIs(t, err, stepvan.ErrClosed)
		require.ErrorContains(t, err, "stopped before the cluster was complete")
		require.Error(t, c.s.Admit(c.nodes[0].pipe.peer.names))
	})
}

func TestSchedulerStopWithALimit(t *testing.T) {
	inCluster(t, beating, func(t *testing.T, c *cluster) {
		c.started()
		err := c.s.Stop(within(time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "server 0-1 and worker 0-1 had not left")
		<-c.nodes[0].Done()
		requireLost(t, c.nodes[0].Err(), "the scheduler left")
	})
}

func TestStopWhileJoining(t *testing.T) {
	inCluster(t, beating, func(t *testing.T, c *cluster) {
		n := c.office(stepvan.RoleWorker, 0, nil)
		j := n.join(t.Context())
		c.pending(j)
		require.NoError(t, n.Stop(t.Context()))
		require.ErrorIs(t, <-j, stepvan.ErrClosed)
		synctest.Wait()
		require.Empty(t, c.s.Peers(), "its place is free")
		idle := c.office(stepvan.RoleWorker, 0, nil)
		require.NoError(t, idle.Stop(t.Context()))
		require.ErrorIs(t, <-idle.join(t.Context()), stepvan.ErrInvalid)
	})
}
