package afd_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/examples/afd"
	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// limited is the context of every wait of these tests: it ends only when something hangs.
func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// cluster is a cluster within this process.
type cluster struct {
	t       testing.TB
	all     []*ps.Node
	servers []*serverNode
	workers []*workerNode
	serving sync.WaitGroup
}

// start makes a cluster over the van that needs nothing of the machine.
func start(t testing.TB, workers, servers int) *cluster {
	t.Helper()
	return startOver(t, config.VanMem, workers, servers)
}

func startOver(t testing.TB, van config.Van, workers, servers int) *cluster {
	t.Helper()
	base := ps.DefaultSettings()
	base.NumWorker, base.NumServer, base.GroupSize = workers, servers, 1
	base.RootURI, base.Van, base.StartTimeout = "127.0.0.1", van, time.Minute
	base.Role = ps.RoleScheduler
	settings := []ps.Settings{base}
	for i := range servers + workers {
		s := base
		s.Role, s.NodeRank = ps.RoleServer, i
		if i >= servers {
			s.Role, s.NodeRank = ps.RoleWorker, i-servers
		}
		settings = append(settings, s)
	}
	opts := []ps.Option{ps.WithLogger(zerolog.Nop())}
	if van == config.VanMem {
		opts = append(opts, ps.WithNetwork(ps.NewNetwork()))
	}
	nodes, err := ps.StartAll(limited(t), settings, opts...)
	require.NoError(t, err)
	c := &cluster{t: t, all: nodes}
	for _, n := range nodes[1:] {
		t.Cleanup(func() { _ = n.Close() })
		if n.Role() == ps.RoleServer {
			c.servers = append(c.servers, &serverNode{Node: n})
			continue
		}
		c.workers = append(c.workers, &workerNode{Node: n, labels: map[string]int{}, slots: map[tensor.Key]bool{}})
	}
	t.Cleanup(func() { _ = nodes[0].Close() })
	return c
}

// serve runs the program of each server. It ends when all workers have left.
func (c *cluster) serve(slices []*model.FFNSlice, maxTokens int) {
	for i, n := range c.servers {
		s := afd.Server{Node: n, FFN: slices[i], Workers: len(c.workers), MaxTokens: maxTokens}
		c.serving.Go(func() {
			if err := s.Run(limited(c.t)); err != nil {
				c.t.Errorf("server %d: %v", i, err)
			}
		})
	}
}

// stop has all nodes leave. The programs must have given back all memory.
func (c *cluster) stop() {
	c.t.Helper()
	ctx := limited(c.t)
	var leaving sync.WaitGroup
	for _, n := range c.all {
		leaving.Go(func() {
			if n.Role() == ps.RoleServer {
				c.serving.Wait()
			}
			if err := n.Stop(ctx); err != nil {
				c.t.Errorf("%v: %v", n, err)
			}
		})
	}
	leaving.Wait()
	for _, n := range c.all {
		require.Empty(c.t, n.Memory().Leaks(), "%v", n)
	}
}

// workerNode counts what a worker does.
type workerNode struct {
	*ps.Node
	refuse  func() bool // Do gives ErrWouldBlock when set and true
	labels  map[string]int
	slots   map[tensor.Key]bool // that were pushed from
	handles []ps.Handle
}

func (w *workerNode) Do(x *ps.Exchange) (ps.Handle, error) {
	if w.refuse != nil && w.refuse() {
		return ps.Handle{}, stepvan.ErrWouldBlock
	}
	w.labels[x.Label]++
	w.slots[x.PushKeys[0]>>8&0xff] = true
	h, err := w.Node.Do(x)
	w.handles = append(w.handles, h)
	return h, err
}

// inFlight is how many exchanges have not ended.
func (w *workerNode) inFlight() (n int) {
	for _, h := range w.handles {
		if !h.Done() {
			n++
		}
	}
	return n
}

// serverNode is the node of a server, which can refuse.
type serverNode struct {
	*ps.Node
	refuse func() bool // Respond gives ErrWouldBlock when set and true
	pooled bool        // no push finds a registered chunk, so it may have any size
}

func (s *serverNode) Respond(tensors []tensor.Tensor, id ps.RequestID) (ps.Response, error) {
	if s.refuse != nil && s.refuse() {
		return ps.Response{}, stepvan.ErrWouldBlock
	}
	return s.Node.Respond(tensors, id)
}

func (s *serverNode) RegisterRecvBuffer(t tensor.Tensor, ranks []ps.Rank, keys []tensor.Key) (*ps.ReceiveBuffer, error) {
	if s.pooled {
		for i := range keys {
			keys[i] |= 1 << 50
		}
	}
	return s.Node.RegisterRecvBuffer(t, ranks, keys)
}
