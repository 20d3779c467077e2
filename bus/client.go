package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Client gives commands to an agent, of its own process ([Agent.Client]) or of another one ([Dial]). Any goroutine may
// call its methods.
type Client struct {
	s     transport
	role  string
	calls *atomic.Uint64
}

// transport is how commands get to an agent.
type transport interface {
	// begin gives a command to the agent: see session.begin.
	begin(e envelope, done func(result)) error
	// awaitRoom returns a channel that is closed once the queue may have room.
	awaitRoom() <-chan struct{}
	// abandon ends the waits of a command.
	abandon(name string, why error)
	// place says where the agent finds the memory of a view, until release.
	place(v *tensor.Strided) (h TensorHandle, release func(), err error)
	// empty makes a tensor in memory that the agent sees, and free takes it back.
	empty(ctx context.Context, d tensor.DType, shape tensor.Shape) (tensor.Tensor, error)
	free(t *tensor.Tensor) error
	close(ctx context.Context, why error) error
}

func newClient(t transport) *Client { return &Client{t, "", new(atomic.Uint64)} }

// ClientOptions make a [Client].
type ClientOptions struct {
	// Rank is the rank of the client in its job, which orders the ranks of a side. It may be -1 where each agent serves
	// one client of a side. They have the order of the agents then.
	Rank int
	// Silence is how long an agent of another process may be silent while a command waits. Then all commands fail with
	// an error that wraps [stepvan.ErrPeerLost], and so does each later one. 0: 5 s.
	Silence time.Duration
}

// Client makes a client.
func (a *Agent) Client(o ClientOptions) (*Client, error) {
	s, err := a.connect(o.Rank)
	if err != nil {
		return nil, err
	}
	return newClient(s), nil
}

// As returns the client in the role of one side of its pairs. It is for clients that are both sides of a pair. Each
// role has its own batches.
func (c *Client) As(side string) *Client { return &Client{c.s, side, c.calls} }

// Call is a command that was given to an agent.
type Call struct {
	c    *Client
	name string // of the completion
	what string
	done chan struct{}
	r    result
}

// Start gives a command to the agent, and does not wait. It sets the time of the command. It sets the semaphore where
// the command lacks one. The error is [stepvan.ErrWouldBlock] while too many commands have not completed.
func (c *Client) Start(command Command) (*Call, error) { return c.start(envelope{command: command}) }

func (c *Client) start(e envelope) (*Call, error) {
	command := e.command
	base := command.Base()
	base.Timestamp = float64(time.Now().UnixNano()) / 1e9
	if base.Semaphore == "" {
		base.Semaphore = "call " + strconv.FormatUint(c.calls.Add(1), 10)
	}
	call := &Call{c: c, name: base.Semaphore, what: command.Name(), done: make(chan struct{})}
	e.role = c.role
	err := c.s.begin(e, func(r result) {
		call.r = r
		close(call.done)
	})
	if err != nil {
		return nil, err
	}
	return call, nil
}

// Done reports whether the command has completed.
func (x *Call) Done() bool {
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

// Wait waits until the command has completed, and returns its error. Only a [QueryStatus] has a status. When ctx
// ends before that, the command continues.
func (x *Call) Wait(ctx context.Context) (Status, error) {
	select {
	case <-x.done:
		return x.r.status, x.r.err
	case <-ctx.Done():
		return Status{}, fmt.Errorf("%s: %w", x.what, errs.Late("it has not completed: wait again", ctx.Err()))
	}
}

// Do gives a command to the agent and waits until it has completed. It waits for room in the queue, too. When ctx ends,
// the command fails, and nothing is left of it. A [Transfer] continues.
func (c *Client) Do(ctx context.Context, command Command) (Status, error) {
	e := envelope{command: command, waits: ctx}
	if end, ok := ctx.Deadline(); ok {
		e.patience = max(time.Until(end), 1)
	}
	for {
		x, err := c.start(e)
		if err == nil {
			return x.finish(ctx)
		}
		if !errors.Is(err, stepvan.ErrWouldBlock) {
			return Status{}, err
		}
		select {
		case <-c.s.awaitRoom():
		case <-ctx.Done():
			return Status{}, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// finish waits, and gives the command up when ctx ends.
func (x *Call) finish(ctx context.Context) (Status, error) {
	select {
	case <-x.done:
	case <-ctx.Done():
		x.c.s.abandon(x.name, ctx.Err())
		if x.what == "Transfer" {
			return x.Wait(ctx)
		}
		<-x.done // within a second or so
	}
	return x.r.status, x.r.err
}

// Tensor is a tensor that moves over a pair.
type Tensor struct {
	Pair string
	View tensor.Strided
}

// Register registers tensors: see [RegisterTensors]. Their memory is borrowed until the batch has been cleaned up.
func (c *Client) Register(ctx context.Context, batchID string, tensors []Tensor) error {
	command := &RegisterTensors{BatchID: batchID}
	for i := range tensors {
		handle, release, err := c.handle(&tensors[i].View)
		if err != nil {
			return fmt.Errorf("RegisterTensors: batch %q: tensor %d: %w", batchID, i, err)
		}
		defer release()
		command.Tensors = append(command.Tensors, TensorOfPair{tensors[i].Pair, handle})
	}
	_, err := c.Do(ctx, command)
	return err
}

// handle is the handle of a view, which is valid until release.
func (c *Client) handle(v *tensor.Strided) (handle []byte, release func(), err error) {
	h, release, err := c.s.place(v)
	if err != nil {
		return nil, nil, err
	}
	h.DType, h.Shape, h.Strides = v.DType(), v.Shape(), v.Strides()
	if handle, err = h.Encode(); err != nil {
		release()
	}
	return handle, release, err
}

// Empty makes a tensor in memory that the agent sees. The elements have any value. An agent of another process moves no
// other tensors. The tensor belongs to the caller until [Client.Free].
func (c *Client) Empty(ctx context.Context, d tensor.DType, dims ...int64) (tensor.Tensor, error) {
	shape, err := tensor.MakeShape(dims...)
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("client: empty: %w", err)
	}
	t, err := c.s.empty(ctx, d, shape)
	if err != nil {
		return t, fmt.Errorf("client: empty: %w", err)
	}
	return t, nil
}

// Free gives the memory of a tensor of [Client.Empty] back. The error is [stepvan.ErrBusy] while a batch uses it, if
// the agent is in this process. An agent of another process keeps the memory until that batch has ended.
func (c *Client) Free(t tensor.Tensor) error {
	if err := c.s.free(&t); err != nil {
		return fmt.Errorf("client: free: %w", err)
	}
	return nil
}

// Close ends the client. Commands that have not completed fail, and so do its batches, at all ranks. It waits until
// nothing uses its memory. It may be called again.
func (c *Client) Close(ctx context.Context) error { return c.s.close(ctx, errClosedClient) }
