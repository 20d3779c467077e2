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
	rows      = 128
	hidden    = 7168
	pushBytes = rows * hidden
	pullBytes = rows * hidden * 2
	inFlight  = 3
)

// slotKey is the key of micro-batch slot of a worker; pulls have bit 48 set and name their server.
func slotKey(rank ps.Rank, slot int) tensor.Key {
	return tensor.Key(rank)<<16 | tensor.Key(slot)<<8
}

// slot is one micro-batch of a synthetic worker.
type slot struct {
	x      ps.Exchange
	handle ps.Handle
	busy   bool
}

func (c Child) newSlot(node *ps.Node, i int) (*slot, error) {
	key := slotKey(node.Rank(), i)
	push, err := node.Memory().Empty(tensor.Float8E4M3FN, rows, hidden)
	if err != nil {
		return nil, err
	}
	s := &slot{x: ps.Exchange{Label: "exchange", Push: []tensor.Tensor{push}, PushKeys: []tensor.Key{key}}}
	for server := range c.Servers {
		pull, err := node.Memory().Empty(tensor.BFloat16, rows, hidden)
		if err != nil {
			return nil, err
		}
		s.x.Pull = append(s.x.Pull, pull)
		s.x.PullKeys = append(s.x.PullKeys, key|1<<48|tensor.Key(server)<<49)
	}
	return s, nil
}

// push is the synthetic worker: exchanges as an attention worker would, checked but not computed.
func (c Child) push(ctx context.Context, node *ps.Node) error {
	slots := make([]*slot, inFlight)
	for i := range slots {
		var err error
		if slots[i], err = c.newSlot(node, i); err != nil {
			return err
		}
	}
	for n := range c.Exchanges {
		s := slots[n%inFlight]
		if err := c.finish(ctx, s); err != nil {
			return err
		}
		s.x.Push[0].Bytes()[0] = byte(n)
		var err error
		if s.handle, err = node.Do(&s.x); err != nil {
			return err
		}
		s.busy = true
		if (n+1)%(c.Exchanges/4+1) == 0 {
			_, _ = fmt.Fprintf(c.Output, "%3d %% of %d exchanges\n", 100*(n+1)/c.Exchanges, c.Exchanges)
		}
	}
	for _, s := range slots {
		if err := c.finish(ctx, s); err != nil {
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
func (c Child) finish(ctx context.Context, s *slot) error {
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

// answer is the synthetic server: it stands for the FFN, and says who it is.
func (c Child) answer(ctx context.Context, node *ps.Node) (err error) {
	var keys []tensor.Key
	var owners []ps.Rank
	for w := range c.Workers {
		for s := range inFlight {
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
	if y.sent { // the worker has had it: it pushed this key again
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
