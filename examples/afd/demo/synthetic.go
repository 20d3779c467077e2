package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// Step-3 per worker and layer: 128 sequences of hidden size 7168, pushed as fp8 and
// pulled as bf16 (the published Step-3 system description).
const (
	rows   = 128
	hidden = 7168

	PushBytes = rows * hidden     // of a worker to each server
	PullBytes = rows * hidden * 2 // of each server to a worker
	InFlight  = 3                 // micro-batches of a worker
)

// slotKey is the push key of a worker's micro-batch. A pull key has bit 48 set and the server above it.
func slotKey(rank ps.Rank, slot int) tensor.Key {
	return tensor.Key(rank)<<16 | tensor.Key(slot)<<8
}

// slot is one micro-batch of a synthetic worker.
type slot struct {
	x      ps.Exchange
	handle ps.Handle
	busy   bool
}

func (p Process) newSlot(node *ps.Node, i int) (*slot, error) {
	key := slotKey(node.Rank(), i)
	push, err := node.Memory().Empty(tensor.Float8E4M3FN, rows, hidden)
	if err != nil {
		return nil, err
	}
	s := &slot{x: ps.Exchange{Label: "exchange", Push: []tensor.Tensor{push}, PushKeys: []tensor.Key{key}}}
	for server := range p.Servers {
		pull, err := node.Memory().Empty(tensor.BFloat16, rows, hidden)
		if err != nil {
			return nil, err
		}
		s.x.Pull = append(s.x.Pull, pull)
		s.x.PullKeys = append(s.x.PullKeys, key|1<<48|tensor.Key(server)<<49)
	}
	return s, nil
}

// push is the synthetic worker. It exchanges like an attention worker, and checks the
// answers, but computes nothing.
func (p Process) push(ctx context.Context, node *ps.Node) error {
	slots := make([]*slot, InFlight)
	for i := range slots {
		var err error
		if slots[i], err = p.newSlot(node, i); err != nil {
			return err
		}
	}
	for n := range p.Exchanges {
		s := slots[n%InFlight]
		if err := p.finish(ctx, s); err != nil {
			return err
		}
		s.x.Push[0].Bytes()[0] = byte(n)
		var err error
		if s.handle, err = node.Do(&s.x); err != nil {
			return err
		}
		s.busy = true
		if (n+1)%(p.Exchanges/4+1) == 0 {
			_, _ = fmt.Fprintf(p.Output, "%3d %% of %d exchanges\n", 100*(n+1)/p.Exchanges, p.Exchanges)
		}
	}
	for _, s := range slots {
		if err := p.finish(ctx, s); err != nil {
			return err
		}
		for _, t := range append(s.x.Push, s.x.Pull...) {
			if err := t.Region().Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish waits for the exchange of s and checks that each server answered it.
func (p Process) finish(ctx context.Context, s *slot) error {
	if !s.busy {
		return nil
	}
	s.busy = false
	if err := s.handle.Wait(ctx); err != nil {
		return err
	}
	for server, t := range s.x.Pull {
		if got, want := t.Bytes()[0], s.x.Push[0].Bytes()[0]+byte(server); got != want {
			return fmt.Errorf("server %d answered %d, expected %d", server, got, want)
		}
	}
	return nil
}

// answer is the synthetic server. It adds its rank to what was pushed, in place of the FFN.
func (p Process) answer(ctx context.Context, node *ps.Node) (err error) {
	var keys []tensor.Key
	var owners []ps.Rank
	for w := range p.Workers {
		for s := range InFlight {
			keys, owners = append(keys, slotKey(ps.Rank(w), s)), append(owners, ps.Rank(w))
		}
	}
	buffer, err := node.Memory().Empty(tensor.Float8E4M3FN, int64(len(keys)*rows), hidden)
	if err != nil {
		return err
	}
	if _, err := node.RegisterRecvBuffer(buffer, owners, keys); err != nil {
		return err
	}
	replies := make(map[tensor.Key]*reply)
	var batch ps.Batch
	for {
		if err := node.GetBatchInto(ctx, ps.AnyReady, &batch); err != nil {
			if errors.Is(err, stepvan.ErrClosed) {
				return nil // every worker has left
			}
			return err
		}
		for _, request := range batch.Requests {
			if err := respond(ctx, node, request, replies); err != nil {
				return err
			}
		}
	}
}

// reply is the memory of a key's answers, and the last one sent from it.
type reply struct {
	tensors  []tensor.Tensor
	response ps.Response
	sent     bool
}

func respond(ctx context.Context, node *ps.Node, r ps.Request, replies map[tensor.Key]*reply) error {
	key := r.PushKeys()[0]
	y := replies[key]
	if y == nil {
		out, err := node.Memory().Empty(tensor.BFloat16, rows, hidden)
		if err != nil {
			return err
		}
		y = &reply{tensors: []tensor.Tensor{out}}
		replies[key] = y
	}
	if y.sent { // the worker has the answer before: it pushed this key again
		if err := y.response.Wait(ctx); err != nil {
			return err
		}
	}
	y.tensors[0].Bytes()[0] = r.Pushes()[0].Bytes()[0] + byte(node.Rank())
	var err error
	y.response, err = node.Respond(y.tensors, r.ID)
	y.sent = true
	return err
}
