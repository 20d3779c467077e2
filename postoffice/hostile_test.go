package postoffice

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
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
		"post early":    {join, encode(opPost, 1, postBody{Key: "a"})},
		"watch early":   {join, encode(opWatch, 1, watchBody{})},
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
		"post 0":            encode(opPost, 0, postBody{Key: "a"}),
		"no key":            encode(opPost, 1, postBody{}),
		"key of two lines":  encode(opPost, 1, postBody{Key: "a\nb"}),
		"long key":          encode(opRemove, 1, removeBody{Key: strings.Repeat("k", MaxKey+1)}),
		"long value":        encode(opRemove, 1, removeBody{Key: "k", Only: &[]byte{MaxValue: 0}}),
		"long old value":    encode(opPost, 1, postBody{Key: "a", Value: make([]byte, MaxValue+1)}),
		"value of no bytes": {op: opPost, request: 1, body: []byte(`{"key":"a","value":"*"}`)},
		"long prefix":       encode(opWatch, 1, watchBody{Prefix: strings.Repeat("k", MaxKey+1)}),
		"next of nothing":   {op: opNext, request: 1},
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

// A member that breaks the rules of a watch is dead, and the entries of others stay.
func TestHostileWatches(t *testing.T) {
	watch, next := encode(opWatch, 900, watchBody{}), frame{op: opNext, request: 900}
	for name, frames := range map[string][]frame{"the same twice": {watch, watch}, "a piece more": {watch, next, next}, "ended": {watch, {op: opUnwatch, request: 900}, next}} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, SchedulerOptions{Peers: 2}, func(t *testing.T, c *cluster) {
				c.started()
				bad, good := c.find(stepvan.RolePeer, 0), c.find(stepvan.RolePeer, 1)
				require.NoError(t, good.Board().Post(t.Context(), "a", nil))
				require.NoError(t, bad.Board().Post(t.Context(), "b", nil))
				for _, f := range frames {
					bad.pipe.post(f)
				}
				bad.pipe.pump()
				<-bad.Done()
				require.ErrorContains(t, bad.Err(), "control message 2")
				require.NoError(t, <-good.watch(t.Context(), "", entries(1)))
			})
		})
	}
}

// A scheduler whose pieces break the rules ends the office.
func TestHostileBoards(t *testing.T) {
	owner := Peer{ID: 4, Role: stepvan.RolePeer}
	entry := func(change func(*Entry)) []frame {
		e := Entry{Key: "a1", Order: 1, Owner: owner}
		change(&e)
		return []frame{encode(opBoard, 1, boardBody{Entries: []Entry{e}})}
	}
	tooMany := make([]frame, 0, 70)
	for i := range 70 {
		var b boardBody
		for j := range 1000 {
			b.Entries = append(b.Entries, Entry{Key: fmt.Sprintf("a%d", 1000*i+j), Order: 1, Owner: Peer{ID: 1, Role: "peer"}})
		}
		for _, page := range pages(b.Entries) {
			tooMany = append(tooMany, encode(opBoard, 1, map[string]any{"entries": page, "more": true}))
		}
	}
	for name, frames := range map[string][]frame{
		"another prefix":  entry(func(e *Entry) { e.Key = "b" }),
		"no key":          entry(func(e *Entry) { e.Key = "" }),
		"long value":      entry(func(e *Entry) { e.Value = make([]byte, MaxValue+1) }),
		"no order":        entry(func(e *Entry) { e.Order = 0 }),
		"owner of none":   entry(func(e *Entry) { e.Owner.Role = "" }),
		"owner without":   entry(func(e *Entry) { e.Owner.ID = 0 }),
		"removed no key":  {encode(opBoard, 1, boardBody{Removed: []string{"\x1b"}})},
		"no JSON":         {{op: opBoard, request: 1, body: []byte("{")}},
		"not asked for":   {encode(opBoard, 1, boardBody{}), encode(opBoard, 1, boardBody{})},
		"no such request": {{op: opPosted, request: 1}},
		"no reason":       {{op: opNotPosted, request: 1}},
		"too many":        tooMany,
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, SchedulerOptions{Peers: 1}, func(t *testing.T, c *cluster) {
				c.started()
				p := c.find(stepvan.RolePeer, 0)
				p.pipe.peer.mute = true // the scheduler itself says nothing
				watch := p.watch(t.Context(), "a", entries(-1))
				synctest.Wait()
				p.pipe.peer.speak()
				p.pipe.silence()
				for i, f := range frames {
					p.pipe.peer.post(f)
					if name != "not asked for" || i == len(frames)-1 {
						p.pipe.peer.pump()
						synctest.Wait()
					}
				}
				err := <-watch
				require.Error(t, err)
				<-p.Done()
				var wrong *stepvan.ProtocolError
				require.ErrorAs(t, err, &wrong)
				require.ErrorAs(t, p.Err(), &wrong)
				require.ErrorAs(t, p.Board().Post(t.Context(), "a", nil), &wrong)
			})
		})
	}
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
	f.Add(record(join, frame{op: opReady}, encode(opWatch, 1, watchBody{"a"}), encode(opPost, 2, postBody{"a", []byte("x")}), frame{op: opNext, request: 1},
		encode(opRemove, 3, removeBody{Key: "a"}), frame{op: opNext, request: 1}, frame{op: opUnwatch, request: 1}))
	self := Peer{ID: 3, Role: stepvan.RoleWorker, GroupSize: 1}
	f.Add(record(encode(opStart, 0, startBody{Self: self, Epoch: 1, Peers: 1}), encode(opPeers, 0, peersBody{Nodes: []Peer{{ID: 2, Role: stepvan.RoleServer}}}),
		encode(opPosted, 1, nil), encode(opBoard, 1, boardBody{Entries: []Entry{{Key: "a", Order: 1, Owner: self}}}),
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
			joined := victim.join(t.Context())
			go func() {
				if <-joined == nil {
					_, _ = victim.Board().Watch(t.Context(), "", entries(-1))
				}
			}()
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
