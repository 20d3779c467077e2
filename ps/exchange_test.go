package ps_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// echo is a server's program.
type echo struct {
	node  *ps.Node
	batch ps.Batch
	rank  byte
	busy  []*reply // oldest first
}

// reply is the memory of one response.
type reply struct {
	tensors  []tensor.Tensor
	response ps.Response
}

func newEcho(n *ps.Node) (*echo, error) {
	return &echo{node: n, rank: byte(n.Server().Rank())}, nil
}

func (e *echo) run(ctx context.Context, p ps.Policy) error {
	for {
		err := e.node.GetBatchInto(ctx, p, &e.batch)
		if errors.Is(err, stepvan.ErrClosed) && !errors.Is(err, stepvan.ErrPeerLost) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, r := range e.batch.Requests {
			if err := e.answer(r); err != nil {
				return err
			}
		}
	}
}

// answer responds with tensors of its own, which it uses again once they are acknowledged.
func (e *echo) answer(r ps.Request) error {
	pushes, pulls := r.Pushes(), r.Pulls()
	out := e.take()
	for i, p := range pulls {
		if i == len(out.tensors) {
			out.tensors = append(out.tensors, tensor.Tensor{})
		}
		if t := out.tensors[i]; int64(len(t.Bytes())) != p.Bytes {
			t, err := e.node.Memory().Empty(tensor.Uint8, p.Bytes)
			if err != nil {
				return err
			}
			out.tensors[i] = t
		}
		dst := out.tensors[i].Bytes()
		if len(pushes) == 0 {
			clear(dst)
			continue
		}
		src := pushes[min(i, len(pushes)-1)].Bytes()
		for j := range dst {
			dst[j] = src[j%len(src)] + e.rank + 1
		}
	}
	res, err := e.node.Respond(out.tensors[:len(pulls)], r.ID)
	out.response = res
	e.busy = append(e.busy, out)
	return err
}

func (e *echo) take() *reply {
	if len(e.busy) > 0 && e.busy[0].response.Done() {
		r := e.busy[0]
		e.busy = append(e.busy[:0], e.busy[1:]...)
		return r
	}
	return &reply{}
}

// client is a worker's program: it pushes a tensor of size bytes, pulls one of each server, and checks.
type client struct {
	node       *ps.Node
	push, pull []tensor.Tensor
	pushKeys   []tensor.Key
	pullKeys   []tensor.Key
	seed       byte
}

func newClient(n *ps.Node, slot, size int) (*client, error) {
	c := &client{node: n, seed: byte(n.Worker().Rank())}
	servers := n.Worker().Servers()
	t, err := n.Memory().Empty(tensor.Uint8, int64(size))
	c.push, c.pushKeys = append(c.push, t), append(c.pushKeys, key(n.Worker().Rank(), slot))
	for range servers {
		t, e := n.Memory().Empty(tensor.Uint8, int64(size))
		err = errors.Join(err, e)
		c.pull = append(c.pull, t)
		c.pullKeys = append(c.pullKeys, 1<<48|key(n.Worker().Rank(), slot))
	}
	return c, err
}

func (c *client) begin() (ps.Handle, error) {
	c.seed++
	b := c.push[0].Bytes()
	for i := range b {
		b[i] = c.seed + byte(i)
	}
	return c.node.PushPull(c.push, c.pushKeys, c.pull, c.pullKeys)
}

// check looks at the pulled tensors; peers are the node's servers by rank.
func (c *client) check(servers []ps.Rank) error {
	for s, t := range c.pull {
		for i, got := range t.Bytes() {
			if want := c.seed + byte(i) + byte(servers[s]) + 1; got != want {
				return fmt.Errorf("%s, seed %d: server %d answered byte %d with %d, want %d: % x...", c.node, c.seed, servers[s], i, got, want, t.Bytes()[:min(16, len(t.Bytes()))])
			}
		}
	}
	return nil
}

func (c *client) run(ctx context.Context, exchanges int) error {
	var ranks []ps.Rank
	for _, p := range c.node.Peers() {
		if string(p.Role) == "server" {
			ranks = append(ranks, ps.Rank(p.Rank))
		}
	}
	for range exchanges {
		h, err := c.begin()
		if err == nil {
			err = h.Wait(ctx)
		}
		if err == nil {
			err = c.check(ranks)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// work has a worker run exchanges with a client.
func work(ctx context.Context, n *ps.Node, size, exchanges int) error {
	c, err := newClient(n, 0, size)
	if err != nil {
		return err
	}
	return c.run(ctx, exchanges)
}

// exercise has all workers exchange with all servers, and stops the cluster.
func (c *cluster) exercise(size, exchanges int) {
	c.t.Helper()
	ctx := soakLimit(c.t)
	served := make(chan error, len(c.servers))
	for _, n := range c.servers {
		go func() {
			err := serve(ctx, n)
			if err == nil && n.Worker() == nil {
				err = n.Stop(ctx)
			}
			served <- err
		}()
	}
	stopped := make(chan error, 1)
	go func() { stopped <- c.scheduler.Stop(ctx) }()
	each(c.t, c.workers, func(n *ps.Node) error {
		if err := work(ctx, n, size, exchanges); err != nil {
			return err
		}
		return n.Stop(ctx)
	})
	for range c.servers {
		require.NoError(c.t, <-served)
	}
	require.NoError(c.t, <-stopped)
}

func TestExchanges(t *testing.T) {
	for _, van := range vans() {
		for name, c := range map[string]shape{
			"one worker, one server": {workers: 1, servers: 1},
			"three by two":           {workers: 3, servers: 2},
			"joint":                  {workers: 2, servers: 2, joint: true},
			"groups of two":          {workers: 2, servers: 1, group: 2},
		} {
			t.Run(van.name+"/"+name, func(t *testing.T) {
				start(t, van, c).exercise(1000, 20)
			})
		}
	}
}
