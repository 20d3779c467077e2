package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/bench/limit"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/ps"
)

// program is what a worker or a server does.
type program interface {
	check(ctx context.Context, count int) error // exchanges and looks at every byte
	run(ctx context.Context, count int) error   // exchanges as fast as possible; budget: 0 allocations
	finish(ctx context.Context) error           // ends the round of check or run
}

// nodeRunner runs the commands of the coordinator on one node. One goroutine uses it.
type nodeRunner struct {
	node     *ps.Node
	conn     *controlConn
	spec     *Options
	program  program
	times    latencies       // of the last round
	caller   *limit.Caller   // of worker 0
	copier   *limit.Copier   // of worker 0
	answerer *limit.Answerer // of the servers that the limit has
	refit    *limit.Refit    // of all nodes of a resharding
	profile  profile
}

// runNode connects a node with the coordinator at path, runs its commands until finish, and stops the
// node.
func runNode(ctx context.Context, n *ps.Node, path string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	m := &nodeRunner{node: n, conn: newControlConn(conn), times: newLatencies()}
	return m.run(ctx)
}

// run sends hello, runs commands until finish, and stops the node.
func (m *nodeRunner) run(ctx context.Context) error {
	defer m.close()
	defer context.AfterFunc(ctx, func() { m.conn.Close() })()
	if err := m.conn.send(hello{Role: m.node.Role(), Rank: int(m.node.Rank())}); err != nil {
		return m.lost(ctx, err)
	}
	for {
		var c command
		if err := m.conn.receive(&c); err != nil {
			return m.lost(ctx, err)
		}
		if c.Verb == verbFinish {
			return errors.Join(m.profile.stop(), m.closeProgram(ctx), m.node.Stop(ctx), m.conn.send(&reply{}))
		}
		r, err := m.handleCommand(ctx, &c)
		if err != nil {
			_ = m.conn.send(&reply{Error: err.Error()}) // the error of the command says more than an error of send
			return fmt.Errorf("%s: %w", m.node, err)
		}
		if err := m.conn.send(r); err != nil {
			return m.lost(ctx, err)
		}
	}
}

// lost is the error after the connection broke.
func (m *nodeRunner) lost(ctx context.Context, err error) error {
	return preferCause(ctx, fmt.Errorf("%s: the measuring process is gone: %w", m.node, err))
}

// closeProgram ends what the program of a node has opened beside the node: an agent of the bus, a ring, or a loop.
func (m *nodeRunner) closeProgram(ctx context.Context) error {
	p, ok := m.program.(interface{ close(context.Context) error })
	if !ok {
		return nil
	}
	return p.close(ctx)
}

func (m *nodeRunner) close() {
	m.conn.Close()
	if m.answerer != nil {
		m.answerer.Close()
	}
	if m.caller != nil {
		m.caller.Close()
	}
	if m.refit != nil {
		m.refit.Close()
	}
}

// handleCommand runs a command and returns the reply.
func (m *nodeRunner) handleCommand(ctx context.Context, c *command) (*reply, error) {
	if c.Verb == verbPrepare {
		if err := m.prepare(ctx, c.Spec); err != nil {
			return nil, err
		}
		return m.moves(), nil
	}
	if m.spec == nil {
		return nil, errs.Invalid("%s before %s", c.Verb, verbPrepare)
	}
	switch c.Verb {
	case verbCheck:
		if err := m.program.check(ctx, c.Count); err != nil {
			return nil, err
		}
		return m.moves(), m.program.finish(ctx)
	case verbMeasure:
		return m.measure(ctx, c.Count)
	case verbReport:
		if p, ok := m.program.(*refitting); ok {
			return &reply{Ends: p.ends}, nil
		}
		return &reply{Counts: m.times.counts()}, nil
	case verbOpen:
		return m.open()
	case verbConnect:
		return &reply{}, m.connect(ctx, c.Addrs)
	case verbLimit:
		return m.runLimit(ctx, c.Count)
	}
	return nil, errs.Invalid("a %s has no command %q: use the same version for all processes", m.node.Role(), c.Verb)
}

// prepare makes the program of the node's role.
func (m *nodeRunner) prepare(ctx context.Context, s *Options) (err error) {
	if m.spec = s; s == nil {
		return errs.Invalid("%s without a specification", verbPrepare)
	}
	if !s.inOneProcess() || m.node.Role() != stepvan.RoleServer && m.node.Rank() == 0 { // a process has one profile
		if err := m.profile.start(s.Profile, m.node); err != nil {
			return err
		}
	}
	if m.node.Role() == stepvan.RoleWorker {
		if err := checkVan(m.node.Connections(), s.Van); err != nil {
			return err
		}
	}
	switch {
	case s.traits().alike:
		m.program, err = newPeerProgram(ctx, m.node, s, m.times)
	case s.Workload == Barrier:
		m.program = &barriers{node: m.node, times: m.times}
	case m.node.Role() == stepvan.RoleServer:
		m.program, err = newServer(m.node, s, m.times)
	default:
		m.program, err = newWorker(m.node, s, m.times)
	}
	return err
}

// measure runs a round, and times it.
func (m *nodeRunner) measure(ctx context.Context, count int) (*reply, error) {
	m.times.reset()
	p, moves := m.program.(*refitting)
	var sent ps.Traffic
	if moves {
		p.ends.begin()
		sent = p.sent()
	}
	r, err := m.spec.measured(func() error { return m.program.run(ctx, count) })
	if err == nil {
		err = m.program.finish(ctx)
	}
	if moves {
		now := p.sent()
		r.Sent = ps.Traffic{Messages: now.Messages - sent.Messages, Own: now.Own - sent.Own}
	}
	if s, serves := m.program.(*server); serves {
		r.Computed = s.computed
	}
	if p, is := m.program.(*bussing); is && err == nil {
		r.Allocs, r.CPU = r.Allocs+p.besides.allocs, r.CPU+p.besides.cpu
	}
	return r, err
}

// checkVan makes sure that the payload travels by the wanted van.
func checkVan(all ps.Connections, wanted Van) error {
	for _, c := range all {
		if Van(c.Van) != wanted {
			return errs.Invalid("%v is reached by %s and not by %s (%s): unset the STEPVAN_ and DMLC_ variables that choose", c.Peer, c.Van, wanted, c.Reason)
		}
	}
	return nil
}

// open listens for worker 0 of the limit.
func (m *nodeRunner) open() (r *reply, err error) {
	r = &reply{}
	if p, ok := m.program.(*refitting); ok {
		m.refit, r.Addr, err = limit.OpenRefit(m.spec.limit().kind(), p.share)
		return r, err
	}
	m.answerer, r.Addr, err = limit.Listen(m.spec.limit().spec())
	return r, err
}

// connect connects worker 0 to the servers of the limit.
func (m *nodeRunner) connect(ctx context.Context, addrs []string) (err error) {
	if m.refit != nil {
		return m.refit.Connect(ctx, m.spec.Workers, addrs)
	}
	spec := m.spec.limit().spec()
	m.copier = limit.NewCopier(spec.Push + spec.Pull)
	m.caller, err = limit.Connect(ctx, spec, addrs...)
	return err
}

// copyTime is how long a round copies within memory.
const copyTime = time.Millisecond

// runLimit exchanges the same bytes without stepvan.
func (m *nodeRunner) runLimit(ctx context.Context, count int) (r *reply, err error) {
	p, alone := m.program.(*bussing)
	switch {
	case alone:
		r, err = m.spec.measured(func() error { return p.runAlone(ctx, count) })
	case m.refit != nil:
		p, _ := m.program.(*refitting)
		p.ends.begin()
		r, err = m.spec.measured(func() error { return m.refit.Run(count, func(time.Duration) { p.ends.add() }) })
	case m.answerer != nil:
		r, err = &reply{}, m.answerer.Run(count)
	case m.caller != nil:
		m.times.reset()
		sum := time.Duration(0)
		r, err = m.spec.measured(func() error {
			return m.caller.Run(count, func(d time.Duration) { sum += d; m.times.add(d) })
		})
		if m.caller.Apart() {
			r.Elapsed = sum
		}
		r.Copy = m.copier.Run(copyTime)
	default:
		return nil, errs.Invalid("%s before %s and %s", verbLimit, verbOpen, verbConnect)
	}
	if err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	return r, nil
}
