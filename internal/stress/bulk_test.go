package stress

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

const (
	bulkRequests = 6        // that a worker of bulk has in flight
	bulkBytes    = 64 << 20 // that each of them pushes, and as many pulls
	sessionLost  = "session lost"
)

// bulk runs a worker or server that exchanges as much as it can, until the cluster is lost. Then it
// waits for the stop command, so that it sees everything after the first loss. With job.Hasty it
// exits at once.
func (c *childProgram) bulk(ctx context.Context) error {
	n, err := ps.StartFromEnv(ctx, ps.WithLogger(zerolog.New(journal{c.report}).Level(zerolog.DebugLevel)))
	if err != nil {
		return err
	}
	b := &bulk{node: n, report: c.report}
	work := b.serve
	if n.Worker() != nil {
		work = b.ask
	}
	if err := b.furnish(); err != nil {
		return err
	}
	c.report(event{Kind: evStarted, Text: used(n)})
	if err := work(ctx); !errors.Is(err, stepvan.ErrPeerLost) {
		return fmt.Errorf("not the loss of a peer: %w", err)
	}
	c.report(event{Kind: evLost})
	if c.job.Hasty {
		os.Exit(0) // as a program whose main returns
	}
	c.handleCommands(ctx, roleProgram{do: func(command) {}})
	_ = n.Stop(ctx) // the loss is reported
	c.report(event{Kind: evEnded})
	return nil
}

// bulk is the program of a worker or server.
type bulk struct {
	node    *ps.Node
	report  sink
	answer  tensor.Tensor
	flights [bulkRequests]struct {
		exchange ps.Exchange
		handle   ps.Handle
	}
}

// furnish takes all memory.
func (b *bulk) furnish() (err error) {
	take := func() tensor.Tensor {
		t, e := b.node.Memory().Empty(tensor.Uint8, bulkBytes)
		err = errors.Join(err, e)
		return t
	}
	if b.node.Server() != nil {
		b.answer = take()
		return err
	}
	rank := b.node.Worker().Rank()
	for i := range b.flights {
		x := &b.flights[i].exchange
		x.Push, x.PushKeys = []tensor.Tensor{take()}, []tensor.Key{keyOf(rank, allServers, i, pooledKey)}
		x.Pull, x.PullKeys = []tensor.Tensor{take()}, []tensor.Key{keyOf(rank, allServers, i, pullKey)}
	}
	return err
}

// ask keeps all exchanges in flight until one fails, then waits for the others. It marks the first
// that came back.
func (b *bulk) ask(ctx context.Context) (err error) {
	for i := range b.flights {
		f := &b.flights[i]
		if f.handle, err = b.node.Do(&f.exchange); err != nil {
			return err
		}
	}
	for i := 0; err == nil; i++ {
		f := &b.flights[i%bulkRequests]
		if err = f.handle.Wait(ctx); err != nil {
			break
		}
		if i == 0 {
			b.report(event{Kind: evMark})
		}
		var next ps.Handle
		if next, err = b.node.Do(&f.exchange); err == nil {
			f.handle = next
		}
	}
	for i := range b.flights {
		if e := b.flights[i].handle.Wait(ctx); e != nil && !errors.Is(e, stepvan.ErrPeerLost) {
			return e
		}
	}
	return err
}

// serve answers everything with the same tensor.
func (b *bulk) serve(ctx context.Context) error {
	var batch ps.Batch
	for {
		if err := b.node.GetBatchInto(ctx, ps.LockStep, &batch); err != nil {
			return err
		}
		for _, r := range batch.Requests {
			if _, err := b.node.Respond([]tensor.Tensor{b.answer}, r.ID); err != nil {
				return err
			}
		}
	}
}
