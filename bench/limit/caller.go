package limit

import (
	"context"
	"net"
	"time"

	"github.com/stepvan/stepvan/trace"
)

// caller is one side toward an answerer.
type caller interface {
	push() error
	wait() error
	close()
}

// stream carries bytes in order.
type stream interface {
	send(b []byte) error
	receive(b []byte) error
	close()
}

// Caller pushes to all its answerers, and waits for all their answers. One goroutine at a time.
type Caller struct {
	spec Spec
	to   []caller
}

// Connect connects with the answerers that listen at addrs.
func Connect(ctx context.Context, s Spec, addrs ...string) (*Caller, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	c := &Caller{spec: s}
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

func connect(ctx context.Context, s *Spec, addr string, push, pull []byte) (caller, error) {
	if s.Kind == Memory {
		return openMemory(s, addr)
	}
	network, _ := s.network()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	st, err := take(conn, s)
	return &calling{stream: st, out: push, in: pull}, err
}

// take makes a stream of a connection, which belongs to it from then on.
func take(c net.Conn, s *Spec) (stream, error) {
	tune(c)
	if s.parks() {
		return parked{c}, nil
	}
	return takeSocket(c, s.spin())
}

// Run does count exchanges and reports the time of each. Budget: 0 allocations per exchange.
func (c *Caller) Run(count int, took func(time.Duration)) error {
	defer c.spec.lock()()
	for last := trace.Now(); count > 0; count-- {
		if err := c.exchange(); err != nil {
			return err
		}
		next := trace.Now()
		took(time.Duration(next - last))
		last = next
	}
	return nil
}

func (c *Caller) exchange() error {
	for _, to := range c.to {
		if err := to.push(); err != nil {
			return err
		}
	}
	for _, to := range c.to {
		if err := to.wait(); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the connections, and the waits of answerers.
func (c *Caller) Close() {
	for _, to := range c.to {
		to.close()
	}
	c.to = nil
}

// calling is the caller's side of a stream.
type calling struct {
	stream
	out, in []byte
}

func (c *calling) push() error { return c.send(c.out) }
func (c *calling) wait() error { return c.receive(c.in) }
