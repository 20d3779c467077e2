package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/bus"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// bussing is the program of bus. Its agent has one client, in this process or in one of its own. The limit is a plan
// that moves a tensor of the same size between the agents' processes. One goroutine uses it.
type bussing struct {
	node  *ps.Node
	spec  *Options
	times latencies
	agent *bus.Agent

	transfers *transfers    // of a client in this process
	client    *busClient    // in one of its own
	folder    string        // with the socket of the agent
	besides   usage         // of the client's process in the last round
	alone     tensor.Tensor // that the plan moves
	plan      *peer.Plan    // nil until the first check
	version   uint64
}

func newBussing(ctx context.Context, n *ps.Node, s *Options, times latencies) (p *bussing, err error) {
	p = &bussing{node: n, spec: s, times: times}
	if p.alone, err = tensorOf(n, s.Push); err != nil {
		return nil, err
	}
	if p.agent, err = bus.NewAgent(ctx, n.Peer(), n.Board(), bus.Options{Memory: n.Memory()}); err != nil {
		return nil, err
	}
	if s.Processes.Apart {
		err = p.startClient(ctx)
	} else {
		var c *bus.Client
		if c, err = p.agent.Client(bus.ClientOptions{Rank: 0}); err == nil {
			p.transfers = newTransfers(c, p.sends(), s.Push, times)
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.close(ctx))
	}
	return p, nil
}

// sends reports whether this side sends. It is the first peer.
func (p *bussing) sends() bool { return p.node.Rank() == 0 }

// startClient starts the process of the client.
func (p *bussing) startClient(ctx context.Context) (err error) {
	if p.folder, err = os.MkdirTemp("", "stepvan-bench-bus-"); err != nil {
		return err
	}
	l, err := p.agent.Listen(filepath.Join(p.folder, "agent"))
	if err != nil {
		return err
	}
	p.client, err = startBusClient(ctx, p.spec, nodeArgs{Agent: l.Path(), Sends: p.sends(), Pin: p.spec.Cores.Pin})
	return err
}

// agree makes the plan of the limit with the other peer, once.
func (p *bussing) agree(ctx context.Context) (err error) {
	if p.plan != nil {
		return nil
	}
	moves := []peer.Move{{ID: 1, Peer: 1 - stepvan.Rank(p.node.Rank()), View: p.alone.Strided()}}
	sends, recvs := moves, []peer.Move(nil)
	if !p.sends() {
		sends, recvs = nil, moves
	}
	if p.plan, err = p.node.Peer().Plan(ctx, "the plan alone", sends, recvs); err != nil {
		return err
	}
	return checkVan(p.node.Connections(), p.spec.Van)
}

// check implements program.
func (p *bussing) check(ctx context.Context, count int) error {
	if err := p.agree(ctx); err != nil {
		return err
	}
	if p.client != nil {
		_, err := p.client.do(command{Verb: verbCheck, Count: count})
		return err
	}
	return p.transfers.check(ctx, count)
}

// run implements program.
func (p *bussing) run(ctx context.Context, count int) error {
	if p.client == nil {
		return p.transfers.run(ctx, count)
	}
	r, err := p.client.do(command{Verb: verbMeasure, Count: count})
	if err != nil {
		return err
	}
	p.besides = usage{allocs: r.Allocs, cpu: r.CPU}
	return nil
}

// finish implements program. It takes the times of a client in a process of its own.
func (p *bussing) finish(context.Context) error {
	if p.client == nil {
		return nil
	}
	r, err := p.client.do(command{Verb: verbReport})
	if err != nil {
		return err
	}
	p.times.reset()
	return p.times.addCounts(r.Counts)
}

// runAlone runs the plan count times, and times each run.
func (p *bussing) runAlone(ctx context.Context, count int) error {
	p.times.reset()
	for ; count > 0; count-- {
		p.version++
		began := trace.Now()
		h, err := p.plan.Begin(p.version)
		if err == nil {
			err = h.Wait(ctx)
		}
		if err != nil {
			return err
		}
		p.times.add(time.Duration(trace.Now() - began))
	}
	return nil
}

// close ends the client and the agent, before the node is stopped.
func (p *bussing) close(ctx context.Context) error {
	var failed error
	if p.client != nil {
		failed = p.client.close()
	}
	if p.transfers != nil {
		failed = errors.Join(failed, p.transfers.close(ctx))
	}
	failed = errors.Join(failed, p.agent.Close(ctx))
	if p.folder != "" {
		failed = errors.Join(failed, os.RemoveAll(p.folder))
	}
	return failed
}
