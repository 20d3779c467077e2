package postoffice

import (
	"context"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
)

// sink is a service that only listens.
type sink struct{}

func (sink) opened(conn)         {}
func (sink) deliver(conn, frame) {}
func (sink) lost(conn, error)    {}

func TestHostileMessagesCostOnlyTheirSender(t *testing.T) {
	join := encode(opJoin, 0, joinBody{Role: stepvan.RoleWorker, Rank: 1, Instance: AnyLocalRank, GroupSize: 1, Shared: testShared})
	for name, frames := range map[string][]frame{
		"barrier first": {encode(opBarrier, 1, barrierKey{Group: GroupWorkers})},
		"garbage":       {{op: opJoin, body: []byte("\x00\xff{{{")}},
		"empty join":    {{op: opJoin}},
		"joins twice":   {join, join},
		"ready early":   {join, {op: opReady}},
		"stop early":    {join, {op: opStop}},
		"barrier early": {join, encode(opBarrier, 1, barrierKey{Group: GroupServers})},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, SchedulerOptions{Workers: 3, Servers: 1}, func(t *testing.T, c *cluster) {
				others := []chan error{c.office(stepvan.RoleWorker, 0, nil).join(t.Context()), c.office(stepvan.RoleServer, 0, nil).join(t.Context())}
				c.pending(others...)
				mine, its := newPipe(sink{}, &schedulerInbox{c.s}, link.Identity{Incarnation: 7}, link.Identity{})
				(&schedulerInbox{c.s}).opened(its)
				for _, f := range frames {
					mine.post(f)
				}
				mine.pump()
				synctest.Wait()
				require.Contains(t, c.log.text(), "expelled ")
				mine.cut()
				for r := stepvan.Rank(1); r < 3; r++ {
					others = append(others, c.office(stepvan.RoleWorker, r, nil).join(t.Context()))
				}
				for _, j := range others {
					require.NoError(t, <-j)
				}
			})
		})
	}
}

func TestHostileMemberIsDead(t *testing.T) {
	for name, f := range map[string]frame{
		"barrier of others": encode(opBarrier, 1, barrierKey{Group: GroupServers}),
		"request 0":         encode(opBarrier, 0, barrierKey{Group: GroupWorkers}),
		"ready twice":       {op: opReady},
		"no group":          {op: opBarrier, request: 9},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, SchedulerOptions{Workers: 1, Servers: 1}, func(t *testing.T, c *cluster) {
				c.started()
				bad, good := c.find(stepvan.RoleWorker, 0), c.find(stepvan.RoleServer, 0)
				bad.pipe.post(f)
				bad.pipe.pump()
				<-bad.Done()
				require.ErrorIs(t, bad.Err(), stepvan.ErrRemote)
				requireLost(t, good.Barrier(t.Context(), GroupNodes, true), "worker 0")
				require.NoError(t, good.Err())
			})
		})
	}
}

func TestUnknownOperationsAreIgnored(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 1, Servers: 1}, func(t *testing.T, c *cluster) {
		c.started()
		n := c.find(stepvan.RoleWorker, 0)
		n.pipe.post(frame{op: 200, body: []byte("later")})
		n.pipe.pump()
		n.pipe.peer.post(frame{op: 201, body: []byte("later")})
		n.pipe.peer.pump()
		synctest.Wait()
		require.NoError(t, n.Err())
		require.Len(t, c.s.Peers(), 2)
	})
}

func TestHostileSchedulerIsAnError(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 1, Servers: 1}, func(t *testing.T, c *cluster) {
		c.started()
		n := c.find(stepvan.RoleWorker, 0)
		n.pipe.peer.post(encode(opStart, 0, startBody{Self: n.Self(), Epoch: 1}))
		n.pipe.peer.pump()
		<-n.Done()
		var p *stepvan.ProtocolError
		require.ErrorAs(t, n.Err(), &p)
	})
}

// FuzzConversation lets a peer say anything to a scheduler and to a node, in any order.
func FuzzConversation(f *testing.F) {
	record := func(frames ...frame) []byte {
		var b []byte
		for _, fr := range frames {
			b = append(b, byte(fr.op), byte(fr.request))
			b = binary.LittleEndian.AppendUint16(b, uint16(len(fr.body)))
			b = append(b, fr.body...)
		}
		return b
	}
	join := encode(opJoin, 0, joinBody{Role: stepvan.RoleWorker, Rank: 0, Instance: AnyLocalRank, GroupSize: 1, Shared: testShared})
	enter := encode(opBarrier, 5, barrierKey{Group: GroupWorkers, Instances: true})
	f.Add(record(join, frame{op: opReady}, enter, encode(opWithdraw, 5, barrierKey{Group: GroupWorkers, Instances: true}), enter, frame{op: opStop}))
	self := Peer{ID: 3, Role: stepvan.RoleWorker, GroupSize: 1}
	f.Add(record(encode(opStart, 0, startBody{Self: self, Epoch: 1, Peers: 1}), encode(opPeers, 0, peersBody{Nodes: []Peer{{ID: 2, Role: stepvan.RoleServer}}}),
		encode(opGone, 0, goneBody{Epoch: 2, Nodes: []goneNode{{ID: 2, Role: stepvan.RoleServer}}}), encode(opBroken, 1, failure{Kind: failLost}), frame{op: opStopped}))
	f.Fuzz(func(t *testing.T, b []byte) {
		inCluster(t, SchedulerOptions{Workers: 1, StartTimeout: time.Minute}, func(t *testing.T, c *cluster) {
			toScheduler, its := newPipe(sink{}, &schedulerInbox{c.s}, link.Identity{Incarnation: 7}, link.Identity{})
			(&schedulerInbox{c.s}).opened(its)
			victim := c.office(stepvan.RoleWorker, 0, nil)
			var toNode *pipe
			victim.ends.dial = func(context.Context, []string) (conn, error) {
				victim.pipe, toNode = newPipe(&officeInbox{victim.Office}, sink{}, link.Identity{}, link.Identity{})
				return victim.pipe, nil
			}
			victim.join(t.Context())
			synctest.Wait()
			for len(b) >= 4 {
				n := min(int(binary.LittleEndian.Uint16(b[2:])), len(b)-4)
				fr := frame{op: op(b[0]), request: uint64(b[1]), body: b[4 : 4+n]}
				b = b[4+n:]
				toScheduler.post(fr)
				toScheduler.pump()
				toNode.post(fr)
				toNode.pump()
				synctest.Wait()
			}
			toScheduler.cut()
		})
	})
}

func TestRefusedPeersDoNotFloodTheLog(t *testing.T) {
	inCluster(t, SchedulerOptions{Workers: 1}, func(t *testing.T, c *cluster) {
		wrong := encode(opJoin, 0, joinBody{Role: stepvan.RoleWorker, Rank: 7, Instance: AnyLocalRank, GroupSize: 1, Shared: testShared})
		for i := range 300 {
			mine, its := newPipe(sink{}, &schedulerInbox{c.s}, link.Identity{Incarnation: 7}, link.Identity{})
			(&schedulerInbox{c.s}).opened(its)
			if i%2 == 0 {
				mine.post(wrong)
			} else {
				mine.post(frame{op: opReady})
			}
			mine.pump()
		}
		time.Sleep(time.Minute)
		require.Equal(t, 10, c.log.count("refused worker")+c.log.count("expelled "))
		require.Contains(t, c.log.text(), "290 more peers were refused within 10 s")
	})
}
