package ps_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// filled is a tensor of n equal bytes in the node's memory.
func filled(t testing.TB, n *ps.Node, size int64, b byte) tensor.Tensor {
	t.Helper()
	x, err := n.Memory().Empty(tensor.Uint8, size)
	require.NoError(t, err)
	copy(x.Bytes(), bytes.Repeat([]byte{b}, int(size)))
	return x
}

func anyReady(s *ps.Settings) { s.Batch = config.BatchAny }

// serving runs servers until the cluster ends.
func (c *cluster) serving() (ended func()) {
	results := make(chan error, len(c.servers))
	for _, n := range c.servers {
		go func() {
			err := serve(limited(c.t), n)
			if err == nil {
				err = n.Stop(limited(c.t))
			}
			results <- err
		}()
	}
	return func() {
		c.t.Helper()
		each(c.t, append([]*ps.Node{c.scheduler}, c.workers...), func(n *ps.Node) error { return n.Stop(limited(c.t)) })
		for range c.servers {
			require.NoError(c.t, <-results)
		}
	}
}

// Each key is served by one server, the same for every worker and at every time.
func TestRoutingByKey(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{workers: 2, servers: 3, edit: func(s *ps.Settings) { anyReady(s); s.Routing = stepvan.ByKey }})
			ended := c.serving()
			const keys = 64
			var owners [2][keys]byte
			for w, n := range c.workers {
				var push, pull []tensor.Tensor
				var pushKeys, pullKeys []tensor.Key
				for k := range keys {
					push, pushKeys = append(push, filled(t, n, 8, 100)), append(pushKeys, tensor.Key(k))
					pull, pullKeys = append(pull, filled(t, n, 8, 0)), append(pullKeys, tensor.Key(k)|1<<40)
				}
				h, err := n.Do(&ps.Exchange{Push: push, PushKeys: pushKeys, Pull: pull, PullKeys: pullKeys, PairWithPush: true})
				require.NoError(t, err)
				require.NoError(t, h.Wait(limited(t)))
				for k := range keys {
					owners[w][k] = pull[k].Bytes()[0] - 101 // the server's rank
				}
			}
			require.Equal(t, owners[0], owners[1])
			seen := map[byte]int{}
			for _, o := range owners[0] {
				seen[o]++
			}
			require.Len(t, seen, 3, "every server owns some of %d keys: %v", keys, seen)
			ended()
		})
	}
}

func TestNamedRouting(t *testing.T) {
	c := start(t, overMem(), shape{workers: 1, servers: 3, edit: func(s *ps.Settings) { anyReady(s); s.Routing = stepvan.Named }})
	ended := c.serving()
	n := c.workers[0]
	x := ps.Exchange{
		Push: []tensor.Tensor{filled(t, n, 8, 10), filled(t, n, 8, 20)}, PushKeys: []tensor.Key{1, 2}, PushTo: []ps.Rank{2, 0},
		Pull: []tensor.Tensor{filled(t, n, 8, 0), filled(t, n, 8, 0)}, PullKeys: []tensor.Key{11, 12}, PullTo: []ps.Rank{2, 0},
	}
	h, err := n.Do(&x)
	require.NoError(t, err)
	require.NoError(t, h.Wait(limited(t)))
	require.Equal(t, []byte{13, 21}, []byte{x.Pull[0].Bytes()[0], x.Pull[1].Bytes()[0]})
	x.PushTo = []ps.Rank{2, 7}
	_, err = n.Do(&x)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "server 7")
	ended()
}

// A server that batches in lock-step refuses requests that do not reach every server, with a reason.
func TestLockStepRefusesOtherRouting(t *testing.T) {
	c := start(t, overMem(), shape{workers: 1, servers: 2})
	n := c.workers[0]
	h, err := n.Do(&ps.Exchange{Push: []tensor.Tensor{filled(t, n, 8, 1)}, PushKeys: []tensor.Key{1},
		Pull: []tensor.Tensor{filled(t, n, 8, 1)}, PullKeys: []tensor.Key{2}, Routing: ps.ByKey})
	if err == nil {
		err = h.Wait(limited(t))
	}
	require.ErrorContains(t, err, "STEPVAN_BATCH")
}

func TestGetBatchRefusesLockStepBesideOtherRouting(t *testing.T) {
	c := start(t, overMem(), shape{workers: 1, servers: 1, edit: func(s *ps.Settings) {
		s.Routing, s.Batch = stepvan.ByKey, config.BatchAny
	}})
	_, err := c.servers[0].GetBatch(limited(t), ps.LockStep)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "STEPVAN_ROUTING=broadcast")
}

func TestVariablePulls(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{workers: 1, servers: 1})
			w, s := c.workers[0], c.servers[0]
			x := ps.Exchange{
				Pull: []tensor.Tensor{filled(t, w, 100, 0), filled(t, w, 100, 0)}, PullKeys: []tensor.Key{1, 2}, Variable: []bool{true, false},
			}
			h, err := w.Do(&x)
			require.NoError(t, err)
			b, err := s.GetBatch(limited(t), ps.DefaultPolicy)
			require.NoError(t, err)
			require.Len(t, b.Requests, 1)
			require.Empty(t, b.Requests[0].Pushes())
			require.True(t, b.Requests[0].Pulls()[0].Variable)
			short, whole := filled(t, s, 40, 7), filled(t, s, 100, 8)
			_, err = s.Respond([]tensor.Tensor{whole, short}, b.Requests[0].ID)
			require.ErrorIs(t, err, stepvan.ErrInvalid, "only the first pull may be short")
			_, err = s.Respond([]tensor.Tensor{short}, b.Requests[0].ID)
			require.ErrorIs(t, err, stepvan.ErrInvalid, "two pulls")
			_, err = s.Respond([]tensor.Tensor{short, whole}, b.Requests[0].ID)
			require.NoError(t, err)
			_, err = s.Respond([]tensor.Tensor{short, whole}, b.Requests[0].ID)
			require.ErrorIs(t, err, stepvan.ErrStale, "a second respond")
			require.NoError(t, h.Wait(limited(t)))
			lengths, err := h.Lengths()
			require.NoError(t, err)
			require.Equal(t, []int64{40, 100}, lengths)
			require.Equal(t, bytes.Repeat([]byte{7}, 40), x.Pull[0].Bytes()[:40])
			require.Equal(t, make([]byte, 60), x.Pull[0].Bytes()[40:])
		})
	}
}

// With any-to-all pairing every worker instance reaches every server instance.
func TestPairing(t *testing.T) {
	for _, c := range []struct {
		pairing stepvan.Pairing
		servers int // that a worker is paired with
	}{{stepvan.PairInstance, 2}, {stepvan.PairAll, 4}} {
		t.Run(string(c.pairing), func(t *testing.T) {
			cl := start(t, overMem(), shape{workers: 1, servers: 2, group: 2, edit: func(s *ps.Settings) { s.Pairing = c.pairing }})
			for i, n := range cl.workers {
				require.Equal(t, c.servers, n.Worker().Servers())
				for _, p := range n.Peers() {
					if c.pairing == stepvan.PairInstance {
						require.Equal(t, i, int(p.LocalRank), "%s is paired with %s", n, p)
					}
				}
			}
			cl.exercise(100, 10)
		})
	}
}

// A push lands in the buffer that is registered for it, and a view of it can be the response.
func TestRegisteredBuffers(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{workers: 2, servers: 1})
			s := c.servers[0]
			buf, err := s.Memory().Zeros(tensor.Uint8, 2, 1<<20)
			require.NoError(t, err)
			_, err = s.RegisterRecvBuffer(buf, []ps.Rank{0, 1}, []tensor.Key{5, 5})
			require.NoError(t, err)
			each(t, c.all[1:], func(n *ps.Node) error { return n.Barrier(limited(t), ps.Servers|ps.Workers, true) })
			var handles []ps.Handle
			var pulls []tensor.Tensor
			for i, w := range c.workers {
				pull := filled(t, w, 1<<20, 0)
				h, err := w.PushPull([]tensor.Tensor{filled(t, w, 1<<20, byte(i+1))}, []tensor.Key{5}, []tensor.Tensor{pull}, []tensor.Key{6})
				require.NoError(t, err)
				handles, pulls = append(handles, h), append(pulls, pull)
			}
			b, err := s.GetBatch(limited(t), ps.LockStep)
			require.NoError(t, err)
			require.Len(t, b.Requests, 2)
			for i, r := range b.Requests {
				require.Equal(t, ps.Rank(i), r.Worker)
				require.Same(t, &buf.Bytes()[i<<20], &r.Pushes()[0].Bytes()[0], "received in place")
			}
			rows, err := buf.View(tensor.ShapeOf(2 << 20))
			require.NoError(t, err)
			_, err = s.RespondVec(rows, []tensor.Tensor{b.Requests[0].Pushes()[0], b.Requests[1].Pushes()[0]}, []ps.RequestID{b.Requests[0].ID, b.Requests[1].ID})
			require.NoError(t, err)
			for i, h := range handles {
				require.NoError(t, h.Wait(limited(t)))
				require.Equal(t, bytes.Repeat([]byte{byte(i + 1)}, 1<<20), pulls[i].Bytes())
			}
		})
	}
}

// Groups meet in barriers by instance and by node.
func TestBarriers(t *testing.T) {
	c := start(t, overTCP, shape{workers: 2, servers: 1, group: 2})
	for _, g := range []struct {
		group ps.Group
		nodes []*ps.Node
	}{
		{ps.Workers, c.workers},
		{ps.Servers, c.servers},
		{ps.Servers | ps.Workers, c.all[1:]},
		{ps.Scheduler | ps.Servers | ps.Workers, c.all},
	} {
		for _, perInstance := range []bool{true, false} {
			t.Run(fmt.Sprint(g.group, perInstance), func(t *testing.T) {
				each(t, g.nodes, func(n *ps.Node) error { return n.Barrier(limited(t), g.group, perInstance) })
			})
		}
	}
}

// A routing is a word, so a program can mistype it.
func TestUnknownRouting(t *testing.T) {
	c := startLocal(1, 1, nil)
	defer c.stop()
	_, err := c.workers[0].Do(&ps.Exchange{Routing: "keys", Push: []tensor.Tensor{numbersOf(1)}, PushKeys: []tensor.Key{1}})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, `"keys"`)
}
