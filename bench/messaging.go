package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/particle"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/trace"
)

// messaging is the program of particles. The first peer sends a message to a particle, whose hook sends it back. The
// particle lives at the same peer or, apart, at the other one.
type messaging struct {
	pair
	loop  *particle.Loop
	bytes []byte
	group *peer.Group

	left  atomic.Int64  // messages of this round that the hook has not handled
	round chan struct{} // the hook has handled the last one
}

const messageEcho = "echo"

func newMessaging(n *ps.Node, s *Options, times latencies) (p *messaging, err error) {
	p = &messaging{pair: newPair(n, s, times), bytes: make([]byte, s.Push), round: make(chan struct{}, 1)}
	p.loop, err = particle.Open(n.Peer(), particle.Options{Memory: n.Memory()})
	return p, err
}

// home is the peer with the particle.
func (p *messaging) home() stepvan.Rank {
	if p.spec.Processes.Apart {
		return 1
	}
	return 0
}

func (p *messaging) isHome() bool { return stepvan.Rank(p.node.Rank()) == p.home() }

// prepare creates the particle, once.
func (p *messaging) prepare(ctx context.Context) (err error) {
	if p.connected {
		return nil
	}
	if err := p.connect(ctx); err != nil {
		return err
	}
	if p.group, err = p.peer.Group("particles", []stepvan.Rank{0, 1}); err != nil {
		return err
	}
	if p.asks() {
		_, f, err := p.loop.Create(p.home(), 0)
		if err == nil {
			_, err = f.Wait(ctx)
		}
		if err != nil {
			return err
		}
	}
	if err = p.group.Barrier(ctx); err == nil && p.isHome() {
		err = p.loop.Handle(0, messageEcho, p.echo)
	}
	return errors.Join(err, p.group.Barrier(ctx))
}

// echo is the hook.
func (p *messaging) echo(_ *particle.Call, args particle.Value) (particle.Value, error) {
	if p.left.Add(-1) == 0 {
		p.round <- struct{}{}
	}
	return particle.Value{Data: args.Data}, nil
}

// ask sends a message and waits for the answer.
func (p *messaging) ask(ctx context.Context) (particle.Value, error) {
	f, err := p.loop.Send(particle.None, 0, messageEcho, particle.Value{Data: p.bytes})
	if err != nil {
		return particle.Value{}, err
	}
	return f.Wait(ctx)
}

func (p *messaging) check(ctx context.Context, count int) error {
	if err := p.prepare(ctx); err != nil {
		return err
	}
	return p.exchange(ctx, count, func(i int) error {
		for k := range p.bytes {
			p.bytes[k] = byte(i) + byte(k) + byte(k>>8)
		}
		v, err := p.ask(ctx)
		if err == nil && !bytes.Equal(v.Data, p.bytes) {
			err = fmt.Errorf("message %d has come back with other bytes", i)
		}
		return err
	})
}

func (p *messaging) run(ctx context.Context, count int) error {
	return p.exchange(ctx, count, func(int) error {
		began := trace.Now()
		_, err := p.ask(ctx)
		p.times.add(time.Duration(trace.Now() - began))
		return err
	})
}

// exchange has the first peer do something count times, while the other one waits until its hook has run as often.
func (p *messaging) exchange(ctx context.Context, count int, do func(i int) error) error {
	p.left.Add(int64(count))
	if err := p.group.Barrier(ctx); err != nil { // the hook counts what it is told to
		return err
	}
	if p.asks() {
		for i := range count {
			if err := do(i); err != nil {
				return err
			}
		}
	}
	if !p.isHome() {
		p.left.Store(0)
		return nil
	}
	select {
	case <-p.round:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *messaging) finish(context.Context) error { return nil }

// close ends the loop.
func (p *messaging) close(ctx context.Context) error { return p.loop.Close(ctx) }
