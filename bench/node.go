package bench

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/ps"
)

// member is a node of a measurement and the line on which it takes commands. One goroutine.
type member struct {
	node    *ps.Node
	line    *line
	spec    *spec
	worker  *worker // of a worker
	server  *server // of a server
	limit   limiter // of worker 0 and server 0
	listen  net.Listener
	copying *copyLimit // the limit of nodes in one process; nil makes one of sockets
	profile profile
}

// run says hello, obeys until told to finish, and stops the node.
func (m *member) run(ctx context.Context) error {
	defer m.close()
	release := m.line.closeWith(ctx)
	defer release()
	if err := m.line.send(hello{Role: m.node.Role(), Rank: int(m.node.Rank())}); err != nil {
		return m.lost(ctx, err)
	}
	for {
		var c command
		if err := m.line.receive(&c); err != nil {
			return m.lost(ctx, err)
		}
		if c.Verb == verbFinish {
			return errors.Join(m.profile.stop(), m.node.Stop(ctx), m.line.send(&reply{}))
		}
		r, err := m.obey(ctx, &c)
		if err != nil {
			_ = m.line.send(&reply{Error: err.Error()}) // err tells more than what this one might say
			return err
		}
		if err := m.line.send(r); err != nil {
			return m.lost(ctx, err)
		}
	}
}

// lost is the error when the line broke.
func (m *member) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%s: the process that measures is gone: %w", m.node, err)
}

func (m *member) close() {
	m.line.conn.Close()
	if m.listen != nil {
		m.listen.Close()
	}
	if m.limit != nil {
		m.limit.close()
	}
}

// obey does what a command says.
func (m *member) obey(ctx context.Context, c *command) (*reply, error) {
	if c.Verb == verbPrepare {
		return &reply{}, m.prepare(c.Spec)
	}
	if m.spec == nil {
		return nil, errs.Invalid("%s before %s", c.Verb, verbPrepare)
	}
	switch c.Verb {
	case verbCheck:
		if m.worker != nil {
			return &reply{}, m.worker.check(ctx, c.Count)
		}
		return &reply{}, m.server.serve(ctx, true)
	case verbMeasure:
		if m.worker != nil {
			return m.worker.measure(ctx, c.Count)
		}
		return m.server.measure(ctx)
	case verbOpen:
		return m.open()
	case verbConnect:
		return &reply{}, m.connect(ctx, c.Addr)
	case verbLimit:
		return m.runLimit(c.Count)
	}
	return nil, errs.Invalid("%q is no command", c.Verb)
}

// prepare makes the program of the node's role.
func (m *member) prepare(s *spec) (err error) {
	if m.spec = s; s == nil {
		return errs.Invalid("%s without a specification", verbPrepare)
	}
	if s.Van != Mem || m.node.Role() == config.RoleWorker && m.node.Rank() == 0 { // a process has one profile
		if err := m.profile.start(s.Profile, m.node); err != nil {
			return err
		}
	}
	if m.node.Role() == config.RoleWorker {
		m.worker, err = newWorker(m.node, s)
	} else {
		m.server, err = newServer(m.node, s)
	}
	return err
}

// open has server 0 listen for the limit's socket.
func (m *member) open() (r *reply, err error) {
	if m.copying != nil {
		m.limit = m.copying
		return &reply{}, nil
	}
	network, addr := m.spec.limitNetwork()
	if m.listen, err = net.Listen(network, addr); err != nil {
		return nil, err
	}
	return &reply{Addr: m.listen.Addr().String()}, nil
}

// limitNetwork is where sockets of the van's kind listen.
func (s *spec) limitNetwork() (network, addr string) {
	if s.Van == Unix {
		return "unix", "@" // a free abstract name
	}
	return "tcp", "127.0.0.1:0"
}

// connect has worker 0 connect to server 0, which accepts with the first limit.
func (m *member) connect(ctx context.Context, addr string) error {
	if m.copying != nil {
		m.limit = m.copying
		return nil
	}
	network, _ := m.spec.limitNetwork()
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return err
	}
	return m.take(c)
}

func (m *member) take(c net.Conn) error {
	s, err := takeSocket(c)
	if err == nil {
		m.limit = newSocketLimit(s, m.spec)
	}
	return err
}

// runLimit exchanges the same bytes without stepvan.
func (m *member) runLimit(count int) (*reply, error) {
	if m.worker == nil {
		return &reply{}, m.answerLimit(count)
	}
	if m.limit == nil {
		return nil, errs.Invalid("%s before %s", verbLimit, verbConnect)
	}
	m.worker.times.reset()
	start, r := used(), &reply{}
	if err := timeLimit(m.limit, count, m.worker.times); err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	start.since(r)
	var err error
	r.Latencies, err = m.worker.times.encode()
	return r, err
}

func (m *member) answerLimit(count int) error {
	if m.limit == nil {
		c, err := m.listen.Accept()
		if err != nil {
			return err
		}
		if err := m.take(c); err != nil {
			return err
		}
	}
	if err := answerLimit(m.limit, count); err != nil {
		return fmt.Errorf("limit: %w", err)
	}
	return nil
}
