package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/trace"
)

// Handle names a request. It is a small value that may be copied, compared and used from any goroutine.
// A finished handle stays valid until Options.Handles later ones have finished;
// after that its methods return stepvan.ErrStale, as those of the zero Handle do.
//
// A request travels as one message per server, so the handles of its operations
// (see Handles) share its completion.
type Handle struct {
	w  *Worker
	id handles.ID
	op int32
}

// ID is the handle as a number, for bindings. Never 0.
func (h Handle) ID() uint64 { return uint64(h.id) }

// Op is the place of the operation in Handles; 0 is the request itself.
func (h Handle) Op() int { return int(h.op) }

// Handle makes a handle from its number. One that the worker never gave is stale.
func (w *Worker) Handle(id uint64) Handle { return Handle{w: w, id: handles.ID(id)} }

var errNoHandle = fmt.Errorf("stepvan: the zero Handle names no request: %w", stepvan.ErrStale)

// Wait drives the node until every server has answered its part of the request: it has received the pushes, and the pulls
// are written. A request without pulls is answered too, by the server's Respond without tensors. Wait returns the
// request's error: nil, or a *stepvan.OpError that names the server that was lost or refused the request. After such an
// error other servers may keep tensors for a while (see the package's Memory). An error that wraps ctx.Err() says that
// the request is not over: the error names a server that has not answered, the request can be waited for again, and its
// tensors are still borrowed. Wait on a finished handle returns at once.
func (h Handle) Wait(ctx context.Context) error {
	if h.w == nil {
		return errNoHandle
	}
	return h.late(h.w.results.Wait(ctx, h.id))
}

// WaitFor is Wait with a limit of time, past which the error wraps
// context.DeadlineExceeded; negative means for ever. 0 looks without waiting, and its error names no server.
// 0 allocations unless the limit passes.
func (h Handle) WaitFor(d time.Duration) error {
	if h.w == nil {
		return errNoHandle
	}
	err := h.w.results.WaitFor(d, h.id)
	if d == 0 {
		return err
	}
	return h.late(err)
}

// Done reports whether Wait would return at once. It does not drive progress.
func (h Handle) Done() bool { return h.w == nil || h.w.results.Done(h.id) }

// Err returns the error of a finished request, and nil while it goes on.
func (h Handle) Err() error {
	if h.w == nil {
		return errNoHandle
	}
	return h.w.results.Err(h.id)
}

// Handles returns the handles of the operations inside the request: its pushes,
// then the pulls of one server. The first is the request's own.
func (h Handle) Handles() ([]Handle, error) {
	r, err := h.pin()
	if err != nil {
		return nil, err
	}
	defer h.w.results.Unpin(r)
	list := make([]Handle, r.Value.pushes+r.Value.pulls)
	for i := range list {
		list[i] = Handle{w: h.w, id: h.id, op: int32(i)}
	}
	return list, nil
}

// Trace returns the eight timestamps of a finished request in ns; with several
// servers, those of the one that finished last. The middle four are on the
// server's clock.
func (h Handle) Trace() (trace.Stamps, error) {
	r, err := h.finished()
	if err != nil {
		return trace.Stamps{}, err
	}
	defer h.w.results.Unpin(r)
	return r.Value.last, nil
}

// Traces returns the timestamps of each server that the request concerned: by
// rank for a broadcast, else in the order in which the tensors name them.
func (h Handle) Traces() ([]trace.Stamps, error) {
	r, err := h.finished()
	if err != nil {
		return nil, err
	}
	defer h.w.results.Unpin(r)
	if len(r.Value.each) == 0 {
		return []trace.Stamps{r.Value.last}, nil
	}
	return append([]trace.Stamps(nil), r.Value.each...), nil
}

// PullLen returns how many bytes of pull tensor i the server has written, of a
// finished request with Variable.
func (h Handle) PullLen(i int) (int64, error) {
	r, err := h.lengths()
	if err != nil {
		return 0, err
	}
	defer h.w.results.Unpin(r)
	if i < 0 || i >= len(r.Value.lengths) {
		return 0, errs.Invalid("pull %d of %d", i, len(r.Value.lengths))
	}
	return r.Value.lengths[i], nil
}

// Lengths returns PullLen of every pull tensor.
func (h Handle) Lengths() ([]int64, error) {
	r, err := h.lengths()
	if err != nil {
		return nil, err
	}
	defer h.w.results.Unpin(r)
	return append([]int64(nil), r.Value.lengths...), nil
}

func (h Handle) pin() (*handles.Record[result], error) {
	if h.w == nil {
		return nil, errNoHandle
	}
	return h.w.results.Pin(h.id)
}

// finished pins the record of a request that has completed.
func (h Handle) finished() (*handles.Record[result], error) {
	r, err := h.pin()
	if err != nil {
		return nil, err
	}
	if !r.Done() {
		h.w.results.Unpin(r)
		return nil, errs.Invalid("the request has not completed; wait for its handle first")
	}
	return r, nil
}

func (h Handle) lengths() (*handles.Record[result], error) {
	r, err := h.finished()
	if err != nil {
		return nil, err
	}
	if !r.Value.variable {
		h.w.results.Unpin(r)
		return nil, errs.Invalid("no pull of the request was marked as variable-length, so all were written whole")
	}
	return r, nil
}
