package afd

import (
	"context"

	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// WorkerNode is what a Worker uses of its node, a *ps.Node. Tests have nodes that refuse.
type WorkerNode interface {
	Rank() ps.Rank
	Memory() *tensor.Allocator
	Do(x *ps.Exchange) (ps.Handle, error)
}

// ServerNode is what a Server uses of its node, a *ps.Node. Tests have nodes that refuse.
type ServerNode interface {
	Memory() *tensor.Allocator
	RegisterRecvBuffer(t tensor.Tensor, ranks []ps.Rank, keys []tensor.Key) (*ps.ReceiveBuffer, error)
	GetBatchInto(ctx context.Context, p ps.Policy, b *ps.Batch) error
	Respond(tensors []tensor.Tensor, id ps.RequestID) (ps.Response, error)
}

// free gives the memory of tensors back. Nothing may use the tensors afterwards.
func free(tensors ...tensor.Tensor) error {
	for _, t := range tensors {
		if r := t.Region(); r != nil {
			if err := r.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}
