package afd

import (
	"context"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
)

// batches are the methods of *server.Server that an inbox uses.
type batches interface {
	GetBatchInto(ctx context.Context, p server.Policy, b *server.Batch) error
	Respond(tensors []tensor.Tensor, h server.RequestID) (server.Response, error)
	RegisterRecvBuffer(t tensor.Tensor, ranks []stepvan.Rank, keys []tensor.Key) (*server.ReceiveBuffer, error)
}

// InboxOf makes an Inbox of s, whose GetBatch is the returned one's to call.
func InboxOf(s *server.Server) Inbox[server.Request, server.Response] { return &inbox{node: s} }

type inbox struct {
	node  batches
	batch server.Batch // used again for every batch
}

func (i *inbox) GetBatch(ctx context.Context) ([]server.Request, error) {
	err := i.node.GetBatchInto(ctx, server.AnyReady, &i.batch)
	return i.batch.Requests, err
}

func (i *inbox) Respond(tensors []tensor.Tensor, r server.Request) (server.Response, error) {
	return i.node.Respond(tensors, r.ID)
}

func (i *inbox) RegisterRecvBuffer(t tensor.Tensor, ranks []stepvan.Rank, keys []tensor.Key) (Registration, error) {
	return i.node.RegisterRecvBuffer(t, ranks, keys)
}
