package limit

import (
	"context"
	"net"
	"time"

	"github.com/stepvan/stepvan/bench/work"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/trace"
)

// side is one end of a connection between a caller and an answerer. It has the bytes that it sends and
// the memory for those that it receives.
type side interface {
	send() error
	receive() error
	buffers() (out, in []byte)
	close()
}

// Caller pushes to all its answerers, and waits for all their answers. One goroutine at a time.
type Caller struct {
	spec  Spec
	to    []side
	asker *work.Asker // nil: no work
	rdma  *perftest   // nil: bytes are sent to the answerers
}

// Connect connects with the answerers that listen at addrs.
func Connect(ctx context.Context, s Spec, addrs ...string) (*Caller, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	c := &Caller{spec: s}
	if s.Work.Any() {
		if len(addrs) != 1 {
			return nil, errs.Invalid("a limit with work has %d answerers, want 1", len(addrs))
		}
		c.asker = work.NewAsker(s.Work)
	}
	if s.Kind == Perftest {
		return c, c.useRDMA(addrs)
	}
	var push, pull []byte // of all sockets
	if s.Kind != Memory {
		push, pull = written(s.Push), written(s.Pull)
	}
	for _, addr := range addrs {
		one, err := connect(ctx, &s, addr, push, pull)
		if err != nil {
			c.Close()
			return nil, err
		}
		c.to = append(c.to, one)
	}
	return c, nil
}

func (c *Caller) useRDMA(addrs []string) (err error) {
	if len(addrs) != 1 {
		return errs.Invalid("a limit of RDMA has %d answerers, want 1", len(addrs))
	}
	c.rdma, err = newPerftest(addrs[0], c.spec)
	return err
}

// Apart reports whether exchanges are not timed by the clock of Run: other programs make them, and take time to start.
func (c *Caller) Apart() bool { return c.rdma != nil }

func connect(ctx context.Context, s *Spec, addr string, push, pull []byte) (side, error) {
	if s.Kind == Memory {
		return openMemory(s, addr)
	}
	network, _ := s.network()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return newStream(conn, s, push, pull)
}

// Run does count exchanges and reports the time of each, without that for which the answerer computes.
// Budget: 0 allocations per exchange.
func (c *Caller) Run(count int, took func(time.Duration)) error {
	if c.rdma != nil {
		return c.rdma.run(count, took)
	}
	defer c.spec.lock()()
	for last := trace.Now(); count > 0; count-- {
		task, err := c.exchange()
		if err != nil {
			return err
		}
		next := trace.Now()
		took(time.Duration(next-last) - task.Think)
		last = next
	}
	return nil
}

func (c *Caller) exchange() (task work.Task, err error) {
	if c.asker != nil {
		out, _ := c.to[0].buffers()
		task = c.asker.Write(out)
	}
	for _, to := range c.to {
		if err := to.send(); err != nil {
			return task, err
		}
	}
	for _, to := range c.to {
		if err := to.receive(); err != nil {
			return task, err
		}
	}
	if c.asker != nil {
		_, in := c.to[0].buffers()
		err = c.asker.Read(task, in)
	}
	return task, err
}

// Close ends the connections, and the waits of answerers.
func (c *Caller) Close() {
	if c.rdma != nil {
		c.rdma.close()
	}
	for _, to := range c.to {
		to.close()
	}
	c.to = nil
}
