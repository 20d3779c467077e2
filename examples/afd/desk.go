package afd

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/tensor"
)

// desk answers a server's requests, one after the other.
type desk[R Request, H Handle] struct {
	server   *Server[R, H]
	scratch  *model.Scratch
	replies  map[place]*reply[H] // by worker and slot; the layer is 0
	answered int
}

// reply is the memory of the answers to one slot of one worker. The library
// borrows it from Respond until the worker has acknowledged, which it did at the
// latest with the slot's next push.
type reply[H Handle] struct {
	whole  tensor.Tensor   // [max tokens, hidden]
	out    []tensor.Tensor // the rows of the answer
	handle H
	busy   bool
}

// wait returns when the memory is free. A worker that was lost does not read it
// any more.
func (p *reply[H]) wait(ctx context.Context) error {
	if !p.busy {
		return nil
	}
	if err := p.handle.Wait(ctx); err != nil && !errors.Is(err, stepvan.ErrPeerLost) {
		return err
	}
	p.busy = false
	return nil
}

// serve answers until all workers have left.
func (d *desk[R, H]) serve(ctx context.Context) error {
	for {
		requests, err := d.server.Inbox.GetBatch(ctx)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, r := range requests {
			if err := d.answer(ctx, r); err != nil {
				return err
			}
			d.answered++
			if d.server.Progress != nil {
				d.server.Progress(d.answered)
			}
		}
	}
}

func (d *desk[R, H]) answer(ctx context.Context, r R) error {
	at, in, err := d.read(r)
	if err != nil {
		return err
	}
	p, err := d.reply(ctx, at)
	if err != nil {
		return err
	}
	var out []float32
	if p.out[0], out, err = rows(p.whole, len(in)/d.server.FFN.Config().Hidden); err != nil {
		return err
	}
	d.server.FFN.Partial(at.layer, in, out, d.scratch)
	return d.respond(ctx, p, r)
}

// respond waits for the earlier answers once when the node has no room.
func (d *desk[R, H]) respond(ctx context.Context, p *reply[H], r R) error {
	h, err := d.server.Inbox.Respond(p.out, r)
	if errors.Is(err, stepvan.ErrWouldBlock) {
		for _, earlier := range d.replies {
			if err := earlier.wait(ctx); err != nil {
				return err
			}
		}
		h, err = d.server.Inbox.Respond(p.out, r)
	}
	if err != nil {
		return err
	}
	p.handle, p.busy = h, true
	return nil
}

// read checks what a worker pushed: it may have been started with another model
// or other limits.
func (d *desk[R, H]) read(r R) (at place, in []float32, err error) {
	keys, tensors := r.PushKeys(), r.Pushes()
	if len(keys) != 1 || len(tensors) != 1 {
		return at, nil, fmt.Errorf("afd: a request with %d keys and %d tensors; a micro-batch has one of each", len(keys), len(tensors))
	}
	c, shape := d.server.FFN.Config(), tensors[0].Shape()
	at, ok := placeOf(keys[0])
	if !ok || at.layer >= c.Layers || at.slot >= d.server.inFlight() {
		return at, nil, fmt.Errorf("afd: worker %d asks for layer %d of micro-batch slot %d; this server has %d layers and %d slots",
			at.rank, at.layer, at.slot, c.Layers, d.server.inFlight())
	}
	if shape.Rank() != 2 || shape.Dim(1) != int64(c.Hidden) || shape.Dim(0) < 1 || shape.Dim(0) > int64(d.server.MaxTokens) {
		return at, nil, fmt.Errorf("afd: worker %d pushed %s; this server takes 1 to %d tokens of %d", at.rank, shape, d.server.MaxTokens, c.Hidden)
	}
	if in, err = tensor.As[float32](tensors[0]); err != nil {
		return at, nil, fmt.Errorf("worker %d: %w", at.rank, err)
	}
	return at, in, nil
}

// reply finds the memory of the answer and waits until it is free.
func (d *desk[R, H]) reply(ctx context.Context, at place) (*reply[H], error) {
	at.layer = 0
	p := d.replies[at]
	if p == nil {
		whole, err := d.server.Memory.Empty(tensor.Float32, int64(d.server.MaxTokens), int64(d.server.FFN.Config().Hidden))
		if err != nil {
			return nil, err
		}
		p = &reply[H]{whole: whole, out: make([]tensor.Tensor, 1)}
		d.replies[at] = p
	}
	if err := p.wait(ctx); err != nil {
		return nil, fmt.Errorf("answer to worker %d: %w", at.rank, err)
	}
	return p, nil
}

// close gives the memory of all answers back.
func (d *desk[R, H]) close(ctx context.Context) error {
	for _, p := range d.replies {
		if err := p.wait(ctx); err != nil {
			return err
		}
		if err := free(p.whole); err != nil {
			return err
		}
	}
	return nil
}
