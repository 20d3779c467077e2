package afd

import (
	"context"

	"github.com/stepvan/stepvan/tensor"
)

// Handle is an operation under way.
type Handle interface {
	// Wait returns when the operation's tensors belong to the caller again.
	Wait(ctx context.Context) error
}

// Exchange is what a worker needs of its node.
type Exchange[H Handle] interface {
	// PushPull sends every push tensor to all servers; pull tensor s is written by
	// server s. All tensors are borrowed until the handle's Wait returns nil. The
	// lists are the caller's to change once PushPull has returned.
	PushPull(push []tensor.Tensor, pushKeys []tensor.Key, pull []tensor.Tensor, pullKeys []tensor.Key) (H, error)
}

// Request is one worker's push and pull, as a server gets it.
type Request interface {
	// Keys and Tensors are what was pushed, in order; they are the server's until
	// it responds.
	Keys() []tensor.Key
	Tensors() []tensor.Tensor
}

// Inbox is what a server needs of its node. Its GetBatch must answer as soon as
// any worker has asked: workers may have different numbers of micro-batches.
type Inbox[R Request, H Handle] interface {
	// GetBatch waits for requests. net.ErrClosed means that all workers have left.
	GetBatch(ctx context.Context) ([]R, error)
	// Respond answers a request; the tensors are borrowed until the handle is done.
	Respond(tensors []tensor.Tensor, request R) (H, error)
	// RegisterRecvBuffer cuts the bytes of t evenly: part i receives what worker
	// ranks[i] pushes under keys[i].
	RegisterRecvBuffer(t tensor.Tensor, ranks []int, keys []tensor.Key) error
}

// Memory gives uninitialised tensors that the node can send and receive without a
// copy; a *tensor.Allocator is one.
type Memory interface {
	Empty(d tensor.DType, dims ...int64) (tensor.Tensor, error)
}
