package ps_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// vector is a tensor of n bytes in the memory of a node. All of them are value.
func vector(t testing.TB, n *ps.Node, size int64, value byte) *tensor.Tensor {
	t.Helper()
	v, err := n.Memory().Empty(tensor.Uint8, size)
	require.NoError(t, err)
	t.Cleanup(v.Release)
	for i := range v.Bytes() {
		v.Bytes()[i] = value
	}
	return &v
}

// ring makes a plan in which each of some peers sends to the next, and returns its tensors.
func ring(t testing.TB, nodes []*ps.Node, name string, size int64) (from, to []*tensor.Tensor, plans []*peer.Plan) {
	t.Helper()
	n := len(nodes)
	from, to, plans = make([]*tensor.Tensor, n), make([]*tensor.Tensor, n), make([]*peer.Plan, n)
	places := map[*ps.Node]int{}
	for i, node := range nodes {
		from[i], to[i], places[node] = vector(t, node, size, byte(i+1)), vector(t, node, size, 0), i
	}
	each(t, nodes, func(node *ps.Node) (err error) {
		i := places[node]
		next, last := nodes[(i+1)%n].Rank(), nodes[(i+n-1)%n].Rank()
		sends := []peer.Move{{ID: 1, Peer: next, View: from[i].Strided()}}
		recvs := []peer.Move{{ID: 1, Peer: last, View: to[i].Strided()}}
		plans[i], err = node.Peer().Plan(limited(t), name, sends, recvs)
		return err
	})
	return from, to, plans
}

// runRing runs the plan of a ring once, and checks what has come.
func runRing(t testing.TB, to []*tensor.Tensor, plans []*peer.Plan, version uint64) {
	t.Helper()
	handles := make([]peer.Handle, len(plans))
	for i, pl := range plans {
		var err error
		handles[i], err = pl.Begin(version)
		require.NoError(t, err)
	}
	for i, h := range handles {
		require.NoError(t, h.Wait(limited(t)))
		require.Equal(t, version, plans[i].Version())
		last := byte((i+len(plans)-1)%len(plans) + 1)
		require.Equal(t, last, to[i].Bytes()[0])
		require.Equal(t, last, to[i].Bytes()[to[i].Len()-1])
	}
}

// Peers move tensors over every van, and the death of one leaves the others their work.
func TestPeersMoveTensors(t *testing.T) {
	const size = 3 << 20
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{workers: 1, servers: 1, peers: 3})
			require.Nil(t, c.workers[0].Peer())
			require.Nil(t, c.scheduler.Peer())
			for i, n := range c.peers {
				require.EqualValues(t, i, n.Peer().Rank())
				require.Equal(t, 3, n.Peer().Size())
			}
			_, to, plans := ring(t, c.peers, "weights", size)
			runRing(t, to, plans, 1)

			require.NoError(t, c.peers[1].Close())
			for _, i := range []int{0, 2} {
				h, err := plans[i].Begin(2)
				if err == nil { // the news was on its way
					err = h.Wait(limited(t))
				}
				require.ErrorIs(t, err, stepvan.ErrPeerLost)
				require.ErrorContains(t, err, "peer 1")
				require.NotEqualValues(t, 2, plans[i].Version())
				require.NoError(t, plans[i].Close(limited(t)))
				require.NoError(t, c.peers[i].Err())
				_, err = c.peers[i].Peer().Send(to[i].Strided(), 1, 7)
				require.ErrorIs(t, err, stepvan.ErrPeerLost)
			}
			_, to, plans = ring(t, []*ps.Node{c.peers[0], c.peers[2]}, "weights", size)
			runRing(t, to, plans, 1)
			for _, pl := range plans {
				require.NoError(t, pl.Close(limited(t)))
			}
			c.stop()
		})
	}
}

// Without the scheduler the work of peers ends, and every wait learns why.
func TestPeersEndWithTheirScheduler(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{peers: 2})
			to := vector(t, c.peers[0], 100, 0)
			h, err := c.peers[0].Peer().Recv(to.Strided(), 1, 5)
			require.NoError(t, err)
			require.NoError(t, c.scheduler.Close())
			err = h.Wait(limited(t))
			require.ErrorIs(t, err, stepvan.ErrPeerLost)
			require.ErrorContains(t, err, "scheduler")
			_, err = c.peers[1].Peer().Send(to.Strided(), 0, 5)
			for err == nil { // the news is on its way
				_, err = c.peers[1].Peer().Send(to.Strided(), 0, 5)
			}
			require.ErrorContains(t, err, "scheduler")
		})
	}
}

// Nothing waits for a peer that has left the cluster, whether it had a connection with it or not.
func TestAPeerThatHasLeftIsNotWaitedFor(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{peers: 3})
			require.NoError(t, c.peers[0].Peer().Connect(limited(t), 2))
			alone, cancel := context.WithCancel(limited(t))
			cancel()
			require.Error(t, c.peers[2].Stop(alone), "the others have not stopped")
			for _, n := range c.peers[:2] {
				for range 2 { // before and after the news, as far as a test can choose
					to := vector(t, n, 100, 0)
					h, err := n.Peer().Recv(to.Strided(), 2, 5)
					if err == nil {
						err = h.Wait(limited(t))
					}
					require.ErrorIs(t, err, stepvan.ErrPeerLost)
					require.ErrorContains(t, err, "peer 2")
				}
			}
			c.stop()
		})
	}
}

// Mail that was sent before the stop arrives, also where it waits for its connection.
func TestMailBeforeTheStopArrives(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			for range 10 {
				c := start(t, van, shape{peers: 2})
				came := make(chan string, 1)
				stop, err := c.peers[1].Peer().Listen("topic", func(_ stepvan.Rank, body []byte) { came <- string(body) })
				require.NoError(t, err)
				require.NoError(t, c.peers[0].Peer().Mail(1, "topic", []byte("last")))
				c.stop()
				select {
				case body := <-came:
					require.Equal(t, "last", body)
				default:
					t.Fatal("the mail was lost")
				}
				stop()
			}
		})
	}
}
