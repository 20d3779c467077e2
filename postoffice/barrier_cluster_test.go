package postoffice

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// members lists the nodes of a cluster that a barrier needs; the scheduler is not a node.
func (c *cluster) members(g Group) []*node {
	var out []*node
	for _, n := range c.nodes {
		if g.Has(n.Self().Role) {
			out = append(out, n)
		}
	}
	return out
}

func TestBarrierOfEveryGroup(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 4, Servers: 2, Peers: 2, Options: Options{GroupSize: 2}}, func(t *testing.T, c *cluster) {
		c.started()
		for g := Group(1); g <= groupAll; g++ {
			if g&GroupNodes == 0 {
				continue
			}
			var all []func() chan error
			for _, n := range c.members(g) {
				all = append(all, func() chan error { return n.barrier(t.Context(), g, true) })
			}
			if g.Has(stepvan.RoleScheduler) {
				all = append(all, func() chan error { return c.schedulerBarrier(t.Context(), g) })
			}
			for range 3 {
				rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				var done []chan error
				for _, enter := range all[:len(all)-1] {
					done = append(done, enter())
				}
				c.pending(done...)
				done = append(done, all[len(all)-1]())
				for _, d := range done {
					require.NoError(t, <-d, "group %s", g)
				}
			}
		}
	})
}

func (c *cluster) schedulerBarrier(ctx context.Context, g Group) chan error {
	done := make(chan error, 1)
	go func() { done <- c.s.Barrier(ctx, g, true) }()
	return done
}

func TestBarrierPerNodeCountsOneInstance(t *testing.T) {
	for role, o := range map[stepvan.Role]SchedulerOptions{
		stepvan.RoleWorker: {Workers: 4, Servers: 2, Options: Options{GroupSize: 2}},
		stepvan.RolePeer:   {Peers: 4, Options: Options{GroupSize: 2}},
	} {
		inCluster(t, o, func(t *testing.T, c *cluster) {
			c.started()
			group := Group(1 << (roleNumber(role) - 1))
			n := func(r stepvan.Rank) *node { return c.find(role, r) }
			for range 2 {
				a := n(0).barrier(t.Context(), group, false)
				b := n(1).barrier(t.Context(), group, false) // same node: waits along
				c.pending(a, b)
				d := n(3).barrier(t.Context(), group, false)
				require.NoError(t, <-a)
				require.NoError(t, <-b)
				require.NoError(t, <-d)
				require.NoError(t, n(2).Barrier(t.Context(), group, false), "late, its node has passed without it")
			}
			// A round per instance is another one.
			a := n(0).barrier(t.Context(), group, true)
			b := n(2).barrier(t.Context(), group, true)
			c.pending(a, b)
		})
	}
}

func TestBarrierOutsideOfTheGroup(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 1, Servers: 1}, func(t *testing.T, c *cluster) {
		early := c.office(stepvan.RoleWorker, 0, nil)
		require.ErrorIs(t, early.Barrier(t.Context(), GroupWorkers, true), stepvan.ErrInvalid, "before Join")
		c.nodes = nil
		c.started()
		w := c.find(stepvan.RoleWorker, 0)
		for _, g := range []Group{0, GroupScheduler, GroupServers, GroupServers | GroupScheduler, 1 << 7, GroupWorkers | 1<<6} {
			require.ErrorIs(t, w.Barrier(t.Context(), g, true), stepvan.ErrInvalid, "group %d", g)
			require.ErrorIs(t, c.s.Barrier(t.Context(), g&^GroupScheduler, true), stepvan.ErrInvalid, "scheduler, group %d", g)
		}
		first := w.barrier(t.Context(), GroupNodes, true)
		c.pending(first)
		require.ErrorIs(t, w.Barrier(t.Context(), GroupNodes, true), stepvan.ErrInvalid, "two callers")
		require.NoError(t, c.find(stepvan.RoleServer, 0).Barrier(t.Context(), GroupNodes, true))
		require.NoError(t, <-first)
	})
}

func TestBarrierTimeoutCanBeEnteredAgain(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 3}, func(t *testing.T, c *cluster) {
		c.started()
		a, b, d := c.find(stepvan.RoleWorker, 0), c.find(stepvan.RoleWorker, 1), c.find(stepvan.RoleWorker, 2)
		for range 5 {
			err := a.Barrier(within(time.Second), GroupWorkers, true)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "barrier over workers")
		}
		synctest.Wait() // the last withdrawal has arrived
		// Those five do not count: b and d alone do not complete the round.
		jb, jd := b.barrier(t.Context(), GroupWorkers, true), d.barrier(t.Context(), GroupWorkers, true)
		c.pending(jb, jd)
		require.NoError(t, a.Barrier(t.Context(), GroupWorkers, true))
		require.NoError(t, <-jb)
		require.NoError(t, <-jd)
	})
}

// The round completes in the moment in which a member gives up: the others pass, and so does its next call.
func TestBarrierReleasedWhileTimingOut(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 2}, func(t *testing.T, c *cluster) {
		c.started()
		a, b := c.find(stepvan.RoleWorker, 0), c.find(stepvan.RoleWorker, 1)
		a.pipe.hold = opWithdraw // the news of giving up is slow
		ctx, cancel := context.WithCancel(t.Context())
		ja := a.barrier(ctx, GroupWorkers, true)
		c.pending(ja)
		cancel()
		require.ErrorIs(t, <-ja, context.Canceled)
		require.NoError(t, b.Barrier(t.Context(), GroupWorkers, true), "the scheduler saw everybody arrive")
		a.pipe.release()
		require.NoError(t, a.Barrier(t.Context(), GroupWorkers, true), "passes with the round that it missed")
		jb := b.barrier(t.Context(), GroupWorkers, true)
		c.pending(jb)
		require.NoError(t, a.Barrier(t.Context(), GroupWorkers, true), "and the count is right again")
		require.NoError(t, <-jb)
	})
}

func TestBarrierNamesTheDead(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 3, Servers: 1}, func(t *testing.T, c *cluster) {
		c.started()
		w0, w1, w2, s := c.find(stepvan.RoleWorker, 0), c.find(stepvan.RoleWorker, 1), c.find(stepvan.RoleWorker, 2), c.find(stepvan.RoleServer, 0)
		waits := []chan error{
			w0.barrier(t.Context(), GroupWorkers, true), s.barrier(t.Context(), GroupNodes, true),
			w1.barrier(t.Context(), GroupWorkers, true), c.schedulerBarrier(t.Context(), GroupNodes|GroupScheduler),
		}
		c.pending(waits...)
		w2.pipe.cut()
		for _, j := range waits {
			requireLost(t, <-j, "worker 2")
		}
		requireLost(t, w0.Barrier(t.Context(), GroupWorkers, true), "worker 2")
		require.NoError(t, s.Barrier(t.Context(), GroupServers, true), "servers do without")
		time.Sleep(gather)
		synctest.Wait()
		for _, n := range []*node{w0, w1, s} {
			require.Len(t, n.deadNodes(), 1)
			require.Contains(t, n.deadNodes()[0], "worker 2 (host h, pid ")
			require.EqualValues(t, 2, n.Epoch())
		}
	})
}

func TestBarrierSaysWhomItWaitsFor(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 3, Servers: 1}, func(t *testing.T, c *cluster) {
		c.started()
		w := c.find(stepvan.RoleWorker, 1)
		j := w.barrier(within(10*time.Second), GroupNodes|GroupScheduler, true)
		time.Sleep(2 * time.Second)
		require.Contains(t, w.log.text(), "for scheduler, server 0 and worker 0, 2")
		require.ErrorIs(t, <-j, context.DeadlineExceeded)
		require.Equal(t, 3, w.log.count("barrier over scheduler, servers, workers and peers waits"), "after 1, 3 and 7 s")
	})
}

// The model: each instance has passed so many rounds, and a round is over when
// every instance, or one of every node, waits in it.
func TestBarrierModel(t *testing.T) {
	const n, size = 6, 2
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		k := barrierKey{GroupWorkers, seed%2 == 0}
		b := newBarriers(func(k barrierKey) int {
			if k.Instances {
				return n
			}
			return n / size
		})
		members := make([]*member, n)
		for i := range members {
			members[i] = &member{info: Peer{Role: stepvan.RoleWorker, NodeRank: i / size}}
		}
		in, last, passed, completed := map[*member]uint64{}, map[*member]uint64{}, map[*member]int{}, 0
		for request := uint64(1); request < 300; request++ {
			m := members[rnd.IntN(n)]
			if r := in[m]; r != 0 {
				_, again := b.enter(m, k, request, 0)
				require.False(t, again)
				b.withdraw(m, k, request) // another round: no effect
				if rnd.IntN(2) == 0 {
					b.withdraw(m, k, r)
					delete(in, m)
				}
				continue
			}
			if last[m] != 0 && rnd.IntN(4) == 0 {
				b.withdraw(m, k, last[m]) // it had given up before it heard
				last[m] = 0
				passed[m]--
			}
			released, ok := b.enter(m, k, request, 0)
			require.True(t, ok)
			if passed[m] < completed {
				require.Equal(t, []arrival{{m, request}}, released)
				passed[m]++
				last[m] = request
				continue
			}
			in[m] = request
			nodes := map[int]bool{}
			for o := range in {
				nodes[o.info.NodeRank] = true
			}
			if len(nodes) < n/size || k.Instances && len(in) < n {
				require.Nil(t, released)
				continue
			}
			require.Len(t, released, len(in))
			for _, a := range released {
				require.Equal(t, in[a.m], a.request)
				passed[a.m]++
				last[a.m] = a.request
			}
			completed++
			clear(in)
		}
		require.Positive(t, completed)
	}
}
