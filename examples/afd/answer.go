package afd

import (
	"context"
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// responder answers the requests of a server, one after the other.
type responder struct {
	server  *Server
	scratch *model.Scratch
	answers map[chunk]*answer // by worker and slot; the layer is 0
	count   int               // of requests that were answered
}

// answer is the memory for the answers to one slot of one worker. The node borrows
// it from Respond until the worker has acknowledged. The worker has done so, at the
// latest, when it pushes from the same slot again.
type answer struct {
	whole    tensor.Tensor   // [max tokens, hidden]
	out      []tensor.Tensor // the rows that are sent
	response ps.Response     // when busy
	busy     bool
}

// wait returns when the memory is free. A lost worker does not read it any more.
func (a *answer) wait(ctx context.Context) error {
	if !a.busy {
		return nil
	}
	if err := a.response.Wait(ctx); err != nil && !errors.Is(err, stepvan.ErrPeerLost) {
		return err
	}
	a.busy = false
	return nil
}

// serve answers until all workers have left.
func (r *responder) serve(ctx context.Context) error {
	var batch ps.Batch // used again for every batch
	for {
		// Workers may have different numbers of micro-batches, so a batch has the requests of any.
		err := r.server.Node.GetBatchInto(ctx, ps.AnyReady, &batch)
		if errors.Is(err, stepvan.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, request := range batch.Requests {
			if err := r.answer(ctx, request); err != nil {
				return err
			}
			r.count++
			if r.server.Progress != nil {
				r.server.Progress(r.count)
			}
		}
	}
}

func (r *responder) answer(ctx context.Context, request ps.Request) error {
	from, in, err := r.read(request)
	if err != nil {
		return err
	}
	a, err := r.memoryFor(ctx, from)
	if err != nil {
		return err
	}
	var out []float32
	if a.out[0], out, err = rows(a.whole, len(in)/r.server.FFN.Config().Hidden); err != nil {
		return err
	}
	r.server.FFN.Partial(from.layer, in, out, r.scratch)
	return r.respond(ctx, a, request.ID)
}

// respond sends an answer. When the node has no room, it waits once for the earlier answers.
func (r *responder) respond(ctx context.Context, a *answer, id ps.RequestID) error {
	response, err := r.server.Node.Respond(a.out, id)
	if errors.Is(err, stepvan.ErrWouldBlock) {
		for _, earlier := range r.answers {
			if err := earlier.wait(ctx); err != nil {
				return err
			}
		}
		response, err = r.server.Node.Respond(a.out, id)
	}
	if err != nil {
		return err
	}
	a.response, a.busy = response, true
	return nil
}

// read checks what a worker pushed, because the worker may run another model or have other limits.
func (r *responder) read(request ps.Request) (from chunk, in []float32, err error) {
	keys, tensors := request.PushKeys(), request.Pushes()
	if len(keys) != 1 || len(tensors) != 1 {
		return from, nil, fmt.Errorf("afd: a request with %d keys and %d tensors; a micro-batch has one of each", len(keys), len(tensors))
	}
	c, shape := r.server.FFN.Config(), tensors[0].Shape()
	from, ok := parseKey(keys[0])
	if !ok || from.layer >= c.Layers || from.slot >= r.server.inFlight() {
		return from, nil, fmt.Errorf("afd: worker %d asks for layer %d of micro-batch slot %d; this server has %d layers and %d slots",
			from.rank, from.layer, from.slot, c.Layers, r.server.inFlight())
	}
	if shape.Rank() != 2 || shape.Dim(1) != int64(c.Hidden) || shape.Dim(0) < 1 || shape.Dim(0) > int64(r.server.MaxTokens) {
		return from, nil, fmt.Errorf("afd: worker %d pushed %s; this server takes 1 to %d tokens of %d", from.rank, shape, r.server.MaxTokens, c.Hidden)
	}
	if in, err = tensor.As[float32](tensors[0]); err != nil {
		return from, nil, fmt.Errorf("worker %d: %w", from.rank, err)
	}
	return from, in, nil
}

// memoryFor finds the memory of the answer and waits until it is free.
func (r *responder) memoryFor(ctx context.Context, from chunk) (*answer, error) {
	from.layer = 0
	a := r.answers[from]
	if a == nil {
		whole, err := r.server.Node.Memory().Empty(tensor.Float32, int64(r.server.MaxTokens), int64(r.server.FFN.Config().Hidden))
		if err != nil {
			return nil, err
		}
		a = &answer{whole: whole, out: make([]tensor.Tensor, 1)}
		r.answers[from] = a
	}
	if err := a.wait(ctx); err != nil {
		return nil, fmt.Errorf("answer to worker %d: %w", from.rank, err)
	}
	return a, nil
}

// close gives the memory of all answers back.
func (r *responder) close(ctx context.Context) error {
	for _, a := range r.answers {
		if err := a.wait(ctx); err != nil {
			return err
		}
		if err := free(a.whole); err != nil {
			return err
		}
	}
	return nil
}
