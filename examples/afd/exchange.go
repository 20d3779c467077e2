package afd

import (
	"context"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// Handle is an operation under way.
type Handle interface {
	// Wait returns nil when the operation's tensors belong to the caller again.
	Wait(ctx context.Context) error
}

// Exchange is what a Worker needs of its node; *worker.Worker is one.
type Exchange[H Handle] interface {
	// Do sends every push tensor to all servers; pull tensor s is written by server
	// s. stepvan.ErrWouldBlock asks to wait for an earlier handle first.
	Do(r *worker.Exchange) (H, error)
}

// Request is one worker's push and pull, as a Server gets it.
type Request interface {
	// PushKeys and Pushes are what was pushed, in order; they are the server's until
	// it responds.
	PushKeys() []tensor.Key
	Pushes() []tensor.Tensor
}

// Registration is a buffer that receives pushes.
type Registration interface {
	Unregister() error
}

// Inbox is what a Server needs of its node; InboxOf makes one of a *server.Server.
type Inbox[R Request, H Handle] interface {
	// GetBatch waits for a request of any worker: workers may have different
	// numbers of micro-batches. The slice is valid until the next call.
	// net.ErrClosed means that all workers have left.
	GetBatch(ctx context.Context) ([]R, error)
	// Respond answers a request; the tensors are borrowed until the handle is done.
	// stepvan.ErrWouldBlock asks to wait for an earlier handle first.
	Respond(tensors []tensor.Tensor, request R) (H, error)
	// RegisterRecvBuffer cuts the bytes of t evenly: part i receives what worker
	// ranks[i] pushes under keys[i].
	RegisterRecvBuffer(t tensor.Tensor, ranks []stepvan.Rank, keys []tensor.Key) (Registration, error)
}

// Memory gives uninitialised tensors that the node can send and receive without a
// copy; a *tensor.Allocator is one. Who got a tensor closes its region.
type Memory interface {
	Empty(d tensor.DType, dims ...int64) (tensor.Tensor, error)
}

// free gives the memory of tensors back; nothing may use it any more.
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
