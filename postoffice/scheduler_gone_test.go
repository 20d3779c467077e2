package postoffice

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
)

var beating = SchedulerOptions{
	Workers: 2, Servers: 2, Options: Options{HeartbeatInterval: 500 * time.Millisecond, HeartbeatTimeout: 1500 * time.Millisecond},
}

func TestIdleIsNoError(t *testing.T) {
	inCluster(t, beating, func(t *testing.T, c *cluster) {
		c.started()
		time.Sleep(time.Hour)
		for _, n := range c.nodes {
			require.NoError(t, n.Err())
			require.Empty(t, n.deadNodes())
		}
		require.Len(t, c.s.Peers(), 4)
	})
}

func TestSilentNodeIsDeadInTime(t *testing.T) {
	inCluster(t, beating, func(t *testing.T, c *cluster) {
		c.started()
		time.Sleep(10 * time.Second)
		w := c.find(stepvan.RoleWorker, 1)
		other := c.find(stepvan.RoleWorker, 0)
		j := other.barrier(t.Context(), GroupWorkers, true)
		begun := time.Now()
		w.pipe.silence()
		requireLost(t, <-j, "worker 1")
		require.LessOrEqual(t, time.Since(begun), 2*time.Second)
		time.Sleep(gather)
		synctest.Wait()
		for _, n := range c.nodes[:3] {
			if n != w {
				require.Contains(t, n.deadNodes()[0], "silent for")
			}
		}
		require.ErrorIs(t, w.Err(), stepvan.ErrPeerLost, "it is told, should it live")
		require.ErrorContains(t, w.Err(), "silent for")
	})
}

func TestSlowNodeRecovers(t *testing.T) {
	inCluster(t, beating, func(t *testing.T, c *cluster) {
		c.s.o.Log = c.s.o.Log.Level(0)
		c.started()
		w := c.find(stepvan.RoleWorker, 1)
		for range 10 {
			w.pipe.silence()
			time.Sleep(900 * time.Millisecond)
			w.pipe.speak()
			time.Sleep(time.Second)
		}
		require.NoError(t, w.Err())
		require.Positive(t, c.log.count("worker 1 (host h, pid 103) speaks again"))
		require.Zero(t, c.log.count("died"))
	})
}

func TestSchedulerThatWasStoppedBlamesNobody(t *testing.T) {
	inCluster(t, beating, func(t *testing.T, c *cluster) {
		c.started()
		// As after SIGSTOP: the timer comes late, and what the nodes sent meanwhile is not read yet.
		for _, n := range c.nodes {
			n.pipe.silence()
		}
		c.s.turn(time.Now().Add(time.Minute))
		require.Len(t, c.s.Peers(), 4)
		for _, n := range c.nodes {
			n.turn(time.Now().Add(time.Hour), turn(n.o.HeartbeatInterval))
			require.NoError(t, n.Err())
		}
	})
}

func TestSchedulerDeathIsNoticedByAll(t *testing.T) {
	for name, kill := range map[string]func(*pipe){"broken": (*pipe).cut, "silent": func(p *pipe) { p.peer.silence() }} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, beating, func(t *testing.T, c *cluster) {
				c.started()
				waiting := c.find(stepvan.RoleServer, 0)
				j := waiting.barrier(t.Context(), GroupServers, true)
				c.pending(j)
				begun := time.Now()
				for _, n := range c.nodes {
					kill(n.pipe)
				}
				requireLost(t, <-j, "scheduler (mem://scheduler)")
				for _, n := range c.nodes {
					<-n.Done()
					synctest.Wait()
					require.ErrorIs(t, n.Err(), stepvan.ErrPeerLost)
					require.Contains(t, n.deadNodes()[0], "scheduler")
					requireLost(t, n.Barrier(t.Context(), GroupNodes, true), "scheduler")
				}
				require.LessOrEqual(t, time.Since(begun), 2*time.Second)
				requireLost(t, waiting.Stop(t.Context()), "scheduler")
				require.NoError(t, waiting.Stop(t.Context()))
			})
		})
	}
}

// The death of a peer breaks the barriers of peers and no others, and the reverse.
func TestDeathBreaksTheBarriersOfItsRole(t *testing.T) {
	for dying, other := range map[stepvan.Role]stepvan.Role{stepvan.RolePeer: stepvan.RoleWorker, stepvan.RoleWorker: stepvan.RolePeer} {
		o := beating
		o.Peers = 2
		inCluster(t, o, func(t *testing.T, c *cluster) {
			c.started()
			group := func(r stepvan.Role) Group { return Group(1 << (roleNumber(r) - 1)) }
			broken := c.find(dying, 0).barrier(t.Context(), group(dying), true)
			whole := c.find(other, 0).barrier(t.Context(), group(other), true)
			over := c.find(other, 1).barrier(t.Context(), GroupNodes, true)
			c.pending(broken, whole, over)
			c.find(dying, 1).pipe.cut()
			requireLost(t, <-broken, string(dying)+" 1")
			requireLost(t, <-over, string(dying)+" 1")
			require.NoError(t, c.find(other, 1).Barrier(t.Context(), group(other), true))
			require.NoError(t, <-whole)
			time.Sleep(gather)
			synctest.Wait()
			require.Len(t, c.find(other, 0).deadNodes(), 1, "everybody hears of a death")
		})
	}
}

func TestLeavingIsNotDying(t *testing.T) {
	inCluster(t, beating, func(t *testing.T, c *cluster) {
		c.started()
		w, other, s := c.find(stepvan.RoleWorker, 1), c.find(stepvan.RoleWorker, 0), c.find(stepvan.RoleServer, 1)
		j := other.barrier(t.Context(), GroupWorkers, true)
		c.pending(j)
		w.pipe.finish("done early")
		requireLost(t, <-j, "worker 1")
		time.Sleep(gather)
		synctest.Wait()
		require.Equal(t, []string{"worker 1"}, s.leftNodes())
		require.Empty(t, s.deadNodes())
		s.lock()
		known := s.view.gone[w.Self().ID]
		s.unlock()
		require.True(t, known.Left)
		require.Contains(t, known.Reason, "done early")
	})
}

func TestManyDeathsAreToldTogether(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 150, Servers: 1}, func(t *testing.T, c *cluster) {
		c.started()
		s := c.find(stepvan.RoleServer, 0)
		for _, n := range c.nodes {
			if n.Self().Role == stepvan.RoleWorker && n.Self().Rank%3 != 0 {
				n.pipe.cut()
			}
		}
		synctest.Wait()
		time.Sleep(gather)
		synctest.Wait()
		require.Len(t, s.deadNodes(), 100)
		require.EqualValues(t, 101, s.Epoch())
		require.EqualValues(t, 101, c.epoch())
	})
}

func TestAdmit(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 4, Servers: 2, Options: Options{GroupSize: 2}}, func(t *testing.T, c *cluster) {
		s0 := c.office(stepvan.RoleServer, 0, nil)
		require.ErrorContains(t, s0.Admit(link.Identity{ID: 3}), "has not joined its cluster yet")
		c.nodes = nil
		c.started()
		s := c.find(stepvan.RoleServer, 1)
		id := func(n *node) link.Identity {
			return link.Identity{ID: n.Self().ID, Incarnation: n.Self().Incarnation, Name: n.Self().Name()}
		}
		w3, w0 := c.find(stepvan.RoleWorker, 3), c.find(stepvan.RoleWorker, 0)
		require.NoError(t, s.Admit(id(w3)))
		require.NoError(t, w3.Admit(id(s)))
		require.ErrorContains(t, s.Admit(id(w0)), "worker 0 (node 3) is not a peer of server 1: check DMLC_ROLE")
		require.ErrorContains(t, s.Admit(id(c.find(stepvan.RoleServer, 0))), "not a peer")
		require.ErrorContains(t, s.Admit(link.Identity{Name: "x\x1b[31m"}), "x [31m has not joined the cluster of server 1")
		old := id(w3)
		old.Incarnation++
		require.ErrorContains(t, s.Admit(old), "worker 3 is not the one that joined")
		w3.pipe.cut()
		synctest.Wait()
		time.Sleep(gather)
		synctest.Wait()
		require.ErrorContains(t, s.Admit(id(w3)), "worker 3 died, says server 1: ")
		s.pipe.cut()
		synctest.Wait()
		require.Error(t, s.Stop(t.Context()))
		require.ErrorContains(t, s.Admit(id(w3)), "server 1 has stopped: ")
		require.ErrorContains(t, s.Admit(id(w3)), "peer lost")
	})
}

// A scheduler that was stopped for longer than the others wait says so, in its log and in the reasons of losses.
func TestSchedulerThatWasStoppedSaysThatItMayBeGivenUp(t *testing.T) {
	const remark = "the scheduler's process had not run for "
	for name, stop := range map[string]func(*Scheduler){
		"timer first":      func(s *Scheduler) { s.turn(time.Now().Add(time.Minute)) },
		"connection first": func(s *Scheduler) { s.attention.ticked = time.Now().Add(-time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, beating, func(t *testing.T, c *cluster) {
				c.started()
				stop(c.s)
				c.find(stepvan.RoleWorker, 1).pipe.cut()
				time.Sleep(time.Second)
				synctest.Wait()
				require.Contains(t, c.find(stepvan.RoleWorker, 0).deadNodes()[0], remark)
				require.Positive(t, c.log.count("the nodes may have given this scheduler up"))
			})
		})
	}
	inCluster(t, beating, func(t *testing.T, c *cluster) {
		c.started()
		time.Sleep(time.Minute)
		c.find(stepvan.RoleWorker, 1).pipe.cut()
		time.Sleep(gather)
		synctest.Wait()
		require.NotContains(t, c.find(stepvan.RoleWorker, 0).deadNodes()[0], remark)
		require.Zero(t, c.log.count("given this scheduler up"))
	})
}
