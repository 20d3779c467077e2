package postoffice

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
)

func TestStartGivesRanksAndPeers(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 4, Servers: 2, Options: Options{GroupSize: 2}}, func(t *testing.T, c *cluster) {
		c.started()
		w := c.find(stepvan.RoleWorker, 3)
		require.Equal(t, Peer{ID: nodeID(stepvan.RoleWorker, 3), Role: stepvan.RoleWorker, Rank: 3, NodeRank: 1, LocalRank: 1, GroupSize: 2,
			Incarnation: w.Self().Incarnation, Host: "h", PID: w.o.PID}, w.Self())
		require.Len(t, w.Peers(), 1, "instance 1 of the only server node")
		require.Equal(t, "server 1", w.Peers()[0].Name())
		require.Equal(t, []string{"mem://server-1"}, w.Peers()[0].Addresses)

		s := c.find(stepvan.RoleServer, 0)
		require.Equal(t, []string{"worker 0", "worker 2"}, []string{s.Peers()[0].Name(), s.Peers()[1].Name()})
		require.EqualValues(t, 1, s.Epoch())
		require.EqualValues(t, 1, c.epoch())
		require.Len(t, c.s.Peers(), 6)
		require.NotZero(t, s.Self().Incarnation)
	})
}

func TestStartPairsAll(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 2, Servers: 4, Pairing: stepvan.PairAll, Options: Options{GroupSize: 2}}, func(t *testing.T, c *cluster) {
		c.started()
		require.Len(t, c.find(stepvan.RoleWorker, 1).Peers(), 4)
		require.Len(t, c.find(stepvan.RoleServer, 2).Peers(), 2)
	})
}

func TestStartInOrderOfArrival(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 3, Servers: 1}, func(t *testing.T, c *cluster) {
		first, fixed, last := c.office(stepvan.RoleWorker, AnyRank, nil), c.office(stepvan.RoleWorker, 0, nil), c.office(stepvan.RoleWorker, AnyRank, nil)
		var joins []chan error
		for _, n := range []*node{first, fixed, last} {
			joins = append(joins, n.join(t.Context()))
			c.pending(joins...)
		}
		joins = append(joins, c.office(stepvan.RoleServer, AnyRank, nil).join(t.Context()))
		for _, j := range joins {
			require.NoError(t, <-j)
		}
		require.EqualValues(t, []stepvan.Rank{1, 0, 2}, []stepvan.Rank{first.Self().Rank, fixed.Self().Rank, last.Self().Rank})
	})
}

func TestWorkersHearOfServersThatKnowThem(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 1, Servers: 2}, func(t *testing.T, c *cluster) {
		w, s0, s1 := c.office(stepvan.RoleWorker, 0, nil), c.office(stepvan.RoleServer, 0, nil), c.office(stepvan.RoleServer, 1, nil)
		s1.hold = opReady
		jw, j0, j1 := w.join(t.Context()), s0.join(t.Context()), s1.join(t.Context())
		require.NoError(t, <-j0)
		require.NoError(t, <-j1)
		c.pending(jw)
		time.Sleep(6 * time.Second)
		require.Contains(t, c.log.text(), "waiting 5 s for server 1: registered, but has not confirmed its peers")
		s1.pipe.release()
		require.NoError(t, <-jw)
		id := link.Identity{ID: w.Self().ID, Incarnation: w.Self().Incarnation, Name: "worker 0"}
		require.NoError(t, s0.Admit(id))
		require.NoError(t, s1.Admit(id))
	})
}

func TestWaitingLines(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 4, Servers: 1, Options: Options{WaitingEvery: 4 * time.Second}}, func(t *testing.T, c *cluster) {
		n := c.office(stepvan.RoleWorker, 1, nil)
		j := n.join(within(20 * time.Second))
		time.Sleep(13 * time.Second)
		require.Contains(t, c.log.text(), "waiting 12 s for worker 0, 2-3 and server 0: not registered yet")
		require.Equal(t, 3, c.log.count("waiting "))
		require.Equal(t, 3, n.log.count("waiting 4 s")+n.log.count("waiting 8 s")+n.log.count("waiting 12 s"))
		floating := c.office(stepvan.RoleWorker, AnyRank, nil)
		jf := floating.join(t.Context())
		time.Sleep(4 * time.Second)
		require.Contains(t, c.log.text(), "waiting 16 s for 2 more of worker 0, 2-3 and server 0")
		err := <-j
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "2 more of worker 0, 2-3 and server 0: not registered yet")
		require.ErrorContains(t, c.s.Start(within(time.Millisecond)), "3 more of worker 0-3 and server 0", "who gave up has freed its place")
		c.pending(jf)
	})
}

func TestWaitingLinesSayWhereNodesMeet(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 1, Options: Options{WaitingEvery: 4 * time.Second, Meeting: "in the garden"}}, func(t *testing.T, c *cluster) {
		n := c.office(stepvan.RoleWorker, 0, func(o *OfficeOptions) { o.WaitingEvery, o.Meeting = 4*time.Second, "in the kitchen" })
		n.ends.dial = func(ctx context.Context, _ []string) (conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		j := n.join(within(5 * time.Second))
		require.ErrorContains(t, <-j, "DMLC_PS_ROOT_PORT (in the kitchen)")
		require.Contains(t, n.log.text(), "it does not answer yet (in the kitchen)")
		require.Contains(t, c.log.text(), "worker 0: not registered yet (in the garden)")
	})
}

func TestStartDeadlineNamesWhoIsMissing(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 2, Servers: 1, StartTimeout: 30 * time.Second}, func(t *testing.T, c *cluster) {
		j := c.office(stepvan.RoleWorker, 1, nil).join(t.Context())
		begun := time.Now()
		err := c.s.Start(t.Context())
		require.Equal(t, 30*time.Second, time.Since(begun))
		for _, err := range []error{err, <-j} {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "worker 0 and server 0: not registered yet")
			require.ErrorContains(t, err, "STEPVAN_START_TIMEOUT")
		}
		require.NoError(t, c.s.Stop(t.Context()), "nobody is left to wait for")
	})
}

func TestRefusals(t *testing.T) {
	wrong := func(name, value string) []Setting {
		s := append([]Setting(nil), testShared...)
		for i := range s {
			if s[i].Name == name {
				s[i].Value = value
			}
		}
		return s
	}
	for _, tc := range []struct {
		name   string
		role   stepvan.Role
		rank   stepvan.Rank
		change func(*OfficeOptions)
		want   []string
	}{
		{"duplicate", stepvan.RoleWorker, 0, nil, []string{"worker rank 0 is taken by worker 0 (host h, pid 100)", "DMLC_NODE_RANK"}},
		{"rank too high", stepvan.RoleWorker, 4, nil, []string{"worker rank: too high (got 4, want 0 to 3)", "DMLC_NUM_WORKER"}},
		{"too many", stepvan.RoleServer, AnyRank, nil, []string{"all 2 server instances have registered", "DMLC_NUM_SERVER"}},
		{"group size", stepvan.RoleWorker, 2, func(o *OfficeOptions) { o.GroupSize = 8 }, []string{"DMLC_GROUP_SIZE is 8 at the node and 2 at the scheduler"}},
		{"instance too high", stepvan.RoleWorker, 2, func(o *OfficeOptions) { o.Instance = 2 }, []string{"instance: too high (got 2, want below DMLC_GROUP_SIZE, 2)", "DMLC_INSTANCE_ID"}},
		{"same place", stepvan.RoleWorker, 1, func(o *OfficeOptions) { o.Instance = 0 }, []string{"instance 0 of worker node 0 is taken by worker 0"}},
		{"setting", stepvan.RoleWorker, 2, func(o *OfficeOptions) { o.Shared = wrong("STEPVAN_ROUTING", "key") },
			[]string{`STEPVAN_ROUTING is "key" at the node and "broadcast" at the scheduler`, "set the same value"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, SchedulerOptions{Workers: 4, Servers: 2, Options: Options{GroupSize: 2}}, func(t *testing.T, c *cluster) {
				ok := []chan error{
					c.office(stepvan.RoleWorker, 0, nil).join(t.Context()),
					c.office(stepvan.RoleServer, 0, nil).join(t.Context()), c.office(stepvan.RoleServer, 1, nil).join(t.Context()),
				}
				c.pending(ok...)
				n := c.office(tc.role, tc.rank, tc.change)
				err := <-n.join(t.Context())
				require.ErrorIs(t, err, stepvan.ErrRemote)
				for _, want := range tc.want {
					require.ErrorContains(t, err, want)
				}
				require.Contains(t, c.log.text(), "refused "+n.Self().Name())
				// The others start as if nothing had happened.
				for r := stepvan.Rank(1); r < 4; r++ {
					ok = append(ok, c.office(stepvan.RoleWorker, r, nil).join(t.Context()))
				}
				for _, j := range ok {
					require.NoError(t, <-j)
				}
				late := c.office(stepvan.RoleWorker, 1, nil)
				require.ErrorContains(t, <-late.join(t.Context()), "the cluster is complete")
			})
		})
	}
}

func TestARoleThatTheClusterDoesNotHaveIsRefused(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 1}, func(t *testing.T, c *cluster) {
		err := <-c.office(stepvan.RoleServer, AnyRank, nil).join(t.Context())
		require.ErrorIs(t, err, stepvan.ErrRemote)
		require.ErrorContains(t, err, "no servers: set DMLC_ROLE there, or DMLC_NUM_SERVER")
		require.NoError(t, <-c.office(stepvan.RoleWorker, 0, nil).join(t.Context()))
	})
}

func TestTheSettingOfARoleIsNamed(t *testing.T) {
	for _, tc := range []struct {
		o    SchedulerOptions
		role stepvan.Role
		rank stepvan.Rank
		want string
	}{
		{SchedulerOptions{Workers: 1}, stepvan.RolePeer, AnyRank, "this cluster has no peers: set DMLC_ROLE there, or STEPVAN_NUM_PEER on every node"},
		{SchedulerOptions{Peers: 1}, stepvan.RoleWorker, AnyRank, "this cluster has no workers: set DMLC_ROLE there, or DMLC_NUM_WORKER on every node"},
		{SchedulerOptions{Peers: 2}, stepvan.RolePeer, 2, "peer rank: too high (got 2, want 0 to 1)"},
	} {
		inCluster(t, tc.o, func(t *testing.T, c *cluster) {
			require.ErrorContains(t, <-c.office(tc.role, tc.rank, nil).join(t.Context()), tc.want)
		})
	}
}

// A cluster that is complete says what it has, and which settings have the numbers.
func TestACompleteClusterSaysWhatItHas(t *testing.T) {
	for want, o := range map[string]SchedulerOptions{
		"with 2 workers and 1 server, and nodes cannot join later: restart all nodes together, or set DMLC_NUM_WORKER and DMLC_NUM_SERVER":                            {Workers: 2, Servers: 1},
		"with 1 worker, 0 servers and 2 peers, and nodes cannot join later: restart all nodes together, or set DMLC_NUM_WORKER, DMLC_NUM_SERVER and STEPVAN_NUM_PEER": {Workers: 1, Peers: 2},
		"with 1 peer, and nodes cannot join later: restart all nodes together, or set STEPVAN_NUM_PEER":                                                               {Peers: 1},
	} {
		inCluster(t, o, func(t *testing.T, c *cluster) {
			c.started()
			late := c.office(c.nodes[0].Self().Role, AnyRank, nil)
			require.ErrorContains(t, <-late.join(t.Context()), "the cluster is complete, "+want)
		})
	}
}

func TestPeersKnowEachOther(t *testing.T) {
	for name, o := range map[string]SchedulerOptions{
		"alone": {Peers: 4}, "in nodes of two": {Peers: 4, Options: Options{GroupSize: 2}}, "beside workers": {Workers: 2, Servers: 1, Peers: 4},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, o, func(t *testing.T, c *cluster) {
				c.started()
				for _, n := range c.nodes {
					var names []string
					for _, p := range n.Peers() {
						names = append(names, p.Name())
						require.Equal(t, []string{"mem://" + string(p.Role) + "-" + strconv.Itoa(int(p.Rank))}, p.Addresses)
						require.NoError(t, n.Admit(link.Identity{ID: p.ID, Incarnation: p.Incarnation}), "%s dials %s", p, n.Self())
					}
					others := map[stepvan.Rank][]string{0: {"peer 1", "peer 2", "peer 3"}, 2: {"peer 0", "peer 1", "peer 3"}}[n.Self().Rank]
					switch {
					case n.Self().Role != stepvan.RolePeer:
						require.NotContains(t, names, "peer 0", "%s", n.Self())
					case others != nil:
						require.Equal(t, others, names)
					}
				}
				require.Len(t, c.s.Peers(), o.Workers+o.Servers+o.Peers)
			})
		})
	}
}

// Nobody passes a barrier over all roles before every node knows its peers. So a peer that has passed it may dial.
func TestABarrierOverAllRolesWaitsForTheViews(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 1, Servers: 1, Peers: 2}, func(t *testing.T, c *cluster) {
		w, s := c.office(stepvan.RoleWorker, 0, nil), c.office(stepvan.RoleServer, 0, nil)
		p0, p1 := c.office(stepvan.RolePeer, 0, nil), c.office(stepvan.RolePeer, 1, nil)
		p1.hold = opReady
		joins := []chan error{w.join(t.Context()), s.join(t.Context()), p0.join(t.Context()), p1.join(t.Context())}
		require.NoError(t, <-joins[2])
		passed := p0.barrier(t.Context(), GroupNodes, true)
		for _, j := range []int{0, 1, 3} {
			require.NoError(t, <-joins[j])
		}
		done := []chan error{w.barrier(t.Context(), GroupNodes, true), s.barrier(t.Context(), GroupNodes, true)}
		c.pending(append(done, passed)...)
		time.Sleep(6 * time.Second)
		require.Contains(t, c.log.text(), "waiting 5 s for peer 1: registered, but has not confirmed its peers")
		p1.pipe.release()
		require.NoError(t, p1.Barrier(t.Context(), GroupNodes, true))
		require.NoError(t, <-passed)
	})
}

func TestLossBeforeTheStartFreesThePlace(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 1, Servers: 1}, func(t *testing.T, c *cluster) {
		crash := c.office(stepvan.RoleWorker, 0, nil)
		j := crash.join(t.Context())
		c.pending(j)
		crash.pipe.cut()
		requireLost(t, <-j, "scheduler")
		synctest.Wait() // the scheduler has noticed it too
		again := c.office(stepvan.RoleWorker, 0, nil).join(t.Context())
		c.pending(again)
		require.NoError(t, <-c.office(stepvan.RoleServer, 0, nil).join(t.Context()))
		require.NoError(t, <-again)
	})
}

func TestDeathDuringTheStartEndsIt(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 1, Servers: 2}, func(t *testing.T, c *cluster) {
		w, s0, s1 := c.office(stepvan.RoleWorker, 0, nil), c.office(stepvan.RoleServer, 0, nil), c.office(stepvan.RoleServer, 1, nil)
		jw, j0 := w.join(t.Context()), s0.join(t.Context())
		c.pending(jw, j0)
		s1.hold = opReady
		j1 := s1.join(t.Context())
		require.NoError(t, <-j0)
		require.NoError(t, <-j1)
		s1.pipe.cut()
		requireLost(t, <-jw, "server 1")
		requireLost(t, c.s.Start(t.Context()), "server 1")
		synctest.Wait()
		requireLost(t, s0.Err(), "server 1")
		require.NoError(t, c.s.Stop(t.Context()))
	})
}

func TestVisitorsAreDropped(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 1, JoinTimeout: 3 * time.Second}, func(t *testing.T, c *cluster) {
		n := c.office(stepvan.RoleWorker, 0, nil)
		_, err := n.ends.dial(t.Context(), nil)
		require.NoError(t, err)
		synctest.Wait()
		c.s.lock()
		require.Len(t, c.s.conns, 1)
		c.s.unlock()
		time.Sleep(4 * time.Second)
		c.s.lock()
		require.Empty(t, c.s.conns)
		c.s.unlock()
	})
}

// guest is a service that tells when its session is over.
type guest struct {
	sink
	over func()
}

func (g guest) lost(conn, error) { g.over() }

// beat has a peer that does not register open a session, and say that it lives every second until the session ends.
func (c *cluster) beat() {
	over, end := context.WithCancel(context.Background())
	mine, its := newPipe(guest{over: end}, &schedulerInbox{c.s}, link.Identity{Incarnation: 7}, link.Identity{})
	(&schedulerInbox{c.s}).opened(its)
	go func() {
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-tick.C:
				mine.post(frame{op: opHeartbeat})
				mine.pump()
			case <-over.Done():
				tick.Stop()
				return
			}
		}
	}()
}

// sessions is how many the scheduler has.
func (c *cluster) sessions() int {
	c.s.lock()
	defer c.s.unlock()
	return len(c.s.conns)
}

func TestVisitorsAreDroppedWhateverTheySay(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 1, JoinTimeout: 3 * time.Second}, func(t *testing.T, c *cluster) {
		c.beat()
		synctest.Wait()
		require.Equal(t, 1, c.sessions())
		time.Sleep(4 * time.Second)
		require.Zero(t, c.sessions())
	})
}

// A member is not a visitor, however long the others take, and visitors keep no member out.
func TestStartTakesAMinuteAmongVisitors(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 2, Servers: 1, Options: Options{HeartbeatInterval: time.Second, HeartbeatTimeout: 5 * time.Second}}, func(t *testing.T, c *cluster) {
		joins := []chan error{c.office(stepvan.RoleServer, 0, nil).join(t.Context()), c.office(stepvan.RoleWorker, 0, nil).join(t.Context())}
		const perSecond = 20
		for range 60 * perSecond {
			c.beat()
			time.Sleep(time.Second / perSecond)
		}
		c.pending(joins...)
		require.LessOrEqual(t, c.sessions(), 2+11*perSecond)
		joins = append(joins, c.office(stepvan.RoleWorker, 1, nil).join(t.Context()))
		for _, j := range joins {
			require.NoError(t, <-j)
		}
		time.Sleep(12 * time.Second)
		require.Equal(t, 3, c.sessions())
	})
}

func TestSchedulerOptionsAreChecked(t *testing.T) {
	for _, o := range []SchedulerOptions{
		{}, {Workers: 3, Options: Options{GroupSize: 2}}, {Workers: -1}, {Workers: 1, Options: Options{GroupSize: -1}},
		{Workers: 1, Options: Options{HeartbeatInterval: time.Second, HeartbeatTimeout: time.Second}}, {Workers: 1, Options: Options{HeartbeatTimeout: time.Second}},
	} {
		require.ErrorIs(t, o.complete(), stepvan.ErrInvalid)
	}
}
