package afd

import (
	"context"

	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// Handle is an operation in flight. Wait returns nil when the tensors of the
// operation belong to the caller again.
type Handle interface {
	Wait(ctx context.Context) error
}

// WorkerNode is the part of a node that a Worker uses. WorkerOf makes one of a
// *ps.Node; tests have others.
type WorkerNode interface {
	// Do sends every push tensor to all servers. Server s writes pull tensor s.
	// After stepvan.ErrWouldBlock, wait for an earlier handle and call Do again.
	Do(x *ps.Exchange) (Handle, error)
}

// ServerNode is the part of a node that a Server uses. ServerOf makes one of a
// *ps.Node; tests have others.
type ServerNode interface {
	// GetBatch waits for requests of any worker, because workers may have different
	// numbers of micro-batches. The slice is valid until the next call.
	// stepvan.ErrClosed means that all workers have left.
	GetBatch(ctx context.Context) ([]Request, error)
	// Respond answers a request. It borrows the tensors until the handle is done.
	// After stepvan.ErrWouldBlock, wait for an earlier handle and call Respond again.
	Respond(tensors []tensor.Tensor, id ps.RequestID) (Handle, error)
	// RegisterRecvBuffer cuts the bytes of t into equal parts. Part i receives what
	// worker ranks[i] pushes with keys[i].
	RegisterRecvBuffer(t tensor.Tensor, ranks []ps.Rank, keys []tensor.Key) (Registration, error)
}

// Registration is a buffer that receives pushes until Unregister.
type Registration interface {
	Unregister() error
}

// Request is the push of one worker. Keys and tensors belong to the server until
// it responds.
type Request struct {
	ID      ps.RequestID
	Keys    []tensor.Key
	Tensors []tensor.Tensor
}

// Memory makes uninitialised tensors that the node sends and receives without a
// copy; a *tensor.Allocator is one. The caller closes the region of each tensor.
type Memory interface {
	Empty(d tensor.DType, dims ...int64) (tensor.Tensor, error)
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

// WorkerOf makes a WorkerNode of a started worker.
func WorkerOf(n *ps.Node) WorkerNode { return workerNode{n} }

type workerNode struct{ node *ps.Node }

func (w workerNode) Do(x *ps.Exchange) (Handle, error) { return w.node.Do(x) }

// ServerOf makes a ServerNode of a started server. Only the ServerNode may call
// GetBatch from then on.
func ServerOf(n *ps.Node) ServerNode { return &serverNode{node: n} }

type serverNode struct {
	node     *ps.Node
	batch    ps.Batch  // used again for every batch
	requests []Request // of the batch
}

func (s *serverNode) GetBatch(ctx context.Context) ([]Request, error) {
	err := s.node.GetBatchInto(ctx, ps.AnyReady, &s.batch)
	s.requests = s.requests[:0]
	for _, r := range s.batch.Requests {
		s.requests = append(s.requests, Request{ID: r.ID, Keys: r.PushKeys(), Tensors: r.Pushes()})
	}
	return s.requests, err
}

func (s *serverNode) Respond(tensors []tensor.Tensor, id ps.RequestID) (Handle, error) {
	return s.node.Respond(tensors, id)
}

func (s *serverNode) RegisterRecvBuffer(t tensor.Tensor, ranks []ps.Rank, keys []tensor.Key) (Registration, error) {
	return s.node.RegisterRecvBuffer(t, ranks, keys)
}
