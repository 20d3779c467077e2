package peer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link/handles"
)

// Handle names an operation. It is a small value that may be copied, compared and used from any goroutine. A finished
// handle stays valid until [Options].Handles later ones have finished. After that its methods return
// [stepvan.ErrStale], as those of the zero Handle do.
type Handle struct {
	p  *Peer
	id handles.ID
}

// ID is the handle as a number, for bindings. Never 0.
func (h Handle) ID() uint64 { return uint64(h.id) }

// Handle makes a handle from its number. A number that the peer never gave makes a stale handle.
func (p *Peer) Handle(id uint64) Handle { return Handle{p: p, id: handles.ID(id)} }

var errNoHandle = fmt.Errorf("handle: it is the zero Handle: use one that an operation returned: %w", stepvan.ErrStale)

// Wait drives the node until the operation is over, and returns its error. An error that wraps ctx.Err() says that it
// is not over, and can be waited for again. Its memory is still borrowed then.
func (h Handle) Wait(ctx context.Context) error {
	if h.p == nil {
		return errNoHandle
	}
	return h.describeTimeout(h.p.results.Wait(ctx, h.id))
}

// looksBeforeYield is how often a program may look in vain before the movers get its processor. They have no other one
// where GOMAXPROCS is 1.
const looksBeforeYield = 16

// WaitFor is [Handle.Wait] with a limit of time. After it the error wraps [context.DeadlineExceeded]. A negative d
// means no limit. With 0, WaitFor looks without waiting. 0 allocations unless the limit passes.
func (h Handle) WaitFor(d time.Duration) error {
	if h.p == nil {
		return errNoHandle
	}
	err := h.p.results.WaitFor(d, h.id)
	if d == 0 {
		if err != nil && h.p.movers.looks.Add(1)%looksBeforeYield == 0 {
			runtime.Gosched()
		}
		return err
	}
	return h.describeTimeout(err)
}

// Done reports whether [Handle.Wait] would return at once. It does not drive the node.
func (h Handle) Done() bool { return h.p == nil || h.p.results.Done(h.id) }

// Err returns the error of a finished operation, and nil before it has finished.
func (h Handle) Err() error {
	if h.p == nil {
		return errNoHandle
	}
	return h.p.results.Err(h.id)
}

// result is what the record of a handle keeps.
type result struct {
	op     string
	peer   string    // "peer 3"; "" for an operation with several
	posted *transfer // a receive that nothing has matched. Under Peer.mu
}

// describeTimeout names the operation and the peer of a wait that ended too early. It returns other errors as they are.
func (h Handle) describeTimeout(err error) error {
	if err == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	r, pinErr := h.p.results.Pin(h.id)
	if pinErr != nil || r.Done() {
		return err
	}
	defer h.p.results.Unpin(h.id)
	text := "the wait was cancelled: wait again, the operation is not over"
	if errors.Is(err, context.DeadlineExceeded) {
		text = "the wait timed out: wait again, the operation is not over"
	}
	return &stepvan.OpError{Op: r.Value.op, Peer: r.Value.peer, Err: errs.Late(text, err)}
}

// start opens the record of an operation. Under Peer.mu.
func (p *Peer) start(op string, r *remote) *handles.Record[result] {
	record := p.results.Open()
	p.results.Recycle()
	record.Value.op, record.Value.posted, record.Value.peer = op, nil, ""
	if r != nil {
		record.Value.peer = r.Name
	}
	return record
}

// handle is the handle of a record that is not finished, or has just been. Under Peer.mu.
func (p *Peer) handle(r *handles.Record[result]) Handle { return Handle{p: p, id: r.ID()} }

// logUnseen logs an error whose handle was recycled before anybody looked at it. The stop of this node is not worth a
// line.
func (o *Options) logUnseen(r *handles.Record[result], err error) {
	if !errors.Is(err, stepvan.ErrClosed) {
		o.Log.Error().Err(err).Str("op", r.Value.op).Str("peer", r.Value.peer).Msg("an operation failed, and nobody waited for its handle")
	}
}
