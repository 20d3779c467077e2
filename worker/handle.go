package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/trace"
)

// Handle names an exchange. It is a small value that may be copied, compared and used from any goroutine.
// A finished handle stays valid until [Options].Handles later ones have finished.
// After that its methods return [stepvan.ErrStale], as those of the zero Handle do.
//
// An exchange travels as one message per server, so the handles of its operations
// (see [Handle.Handles]) complete together.
type Handle struct {
	w  *Worker
	id handles.ID
	op int32
}

// ID is the handle as a number, for bindings. Never 0.
func (h Handle) ID() uint64 { return uint64(h.id) }

// Op is the index of the operation in [Handle.Handles]. 0 is the exchange itself.
func (h Handle) Op() int { return int(h.op) }

// Handle makes a handle from its number. A number that the worker never gave makes a stale handle.
func (w *Worker) Handle(id uint64) Handle { return Handle{w: w, id: handles.ID(id)} }

var errNoHandle = fmt.Errorf("handle: it is the zero Handle: use one that PushPull or Do returned: %w", stepvan.ErrStale)

// Wait drives the node until every server has answered: it has received the pushes, and the pulls
// are written. A server also answers an exchange without pulls, with a Respond without tensors.
//
// Wait returns the error of the exchange: nil, or a [*stepvan.OpError] that names the server that was lost or that
// refused its request. After such an error other servers may keep tensors for a while: see Memory in the
// documentation of this package. An error that wraps ctx.Err() says that the exchange is not over. It names a server
// that has not answered. The exchange can be waited for again, and its tensors are still borrowed. Wait on a finished
// handle returns at once.
func (h Handle) Wait(ctx context.Context) error {
	if h.w == nil {
		return errNoHandle
	}
	return h.describeTimeout(h.w.results.Wait(ctx, h.id))
}

// WaitFor is [Handle.Wait] with a limit of time. After it the error wraps [context.DeadlineExceeded]. A negative d
// means no limit. With 0, WaitFor looks without waiting, and its error names no server. 0 allocations unless the
// limit passes.
func (h Handle) WaitFor(d time.Duration) error {
	if h.w == nil {
		return errNoHandle
	}
	err := h.w.results.WaitFor(d, h.id)
	if d == 0 {
		return err
	}
	return h.describeTimeout(err)
}

// Done reports whether [Handle.Wait] would return at once. It does not drive the node.
func (h Handle) Done() bool { return h.w == nil || h.w.results.Done(h.id) }

// Err returns the error of a finished exchange, and nil before it has finished.
func (h Handle) Err() error {
	if h.w == nil {
		return errNoHandle
	}
	return h.w.results.Err(h.id)
}

// Handles returns the handles of the operations of the exchange: its pushes,
// then the pulls of one server. The first handle is the exchange's own.
func (h Handle) Handles() ([]Handle, error) {
	r, err := h.pin()
	if err != nil {
		return nil, err
	}
	defer h.w.results.Unpin(h.id)
	list := make([]Handle, r.Value.pushes+r.Value.pulls)
	for i := range list {
		list[i] = Handle{w: h.w, id: h.id, op: int32(i)}
	}
	return list, nil
}

// Trace returns the eight timestamps of a finished exchange in ns. With several
// servers they belong to the server that answered last. The clock of the
// server gives the middle four.
func (h Handle) Trace() (trace.Stamps, error) {
	r, err := h.finished()
	if err != nil {
		return trace.Stamps{}, err
	}
	defer h.w.results.Unpin(h.id)
	return r.Value.last, nil
}

// Traces returns the timestamps of each server of the exchange. For a broadcast they are in the order of ranks, else
// in the order in which the tensors name the servers.
func (h Handle) Traces() ([]trace.Stamps, error) {
	r, err := h.finished()
	if err != nil {
		return nil, err
	}
	defer h.w.results.Unpin(h.id)
	if len(r.Value.each) == 0 {
		return []trace.Stamps{r.Value.last}, nil
	}
	return append([]trace.Stamps(nil), r.Value.each...), nil
}

// PullLen returns how many bytes of pull tensor i the server has written. It is for
// finished exchanges with Variable.
func (h Handle) PullLen(i int) (int64, error) {
	r, err := h.lengths()
	if err != nil {
		return 0, err
	}
	defer h.w.results.Unpin(h.id)
	if i < 0 || i >= len(r.Value.lengths) {
		return 0, errs.Invalid("pull_len: pull tensor %d: the exchange has no such tensor (got %d, want 0 to %d): give the index of a pull tensor", i, i, len(r.Value.lengths)-1)
	}
	return r.Value.lengths[i], nil
}

// Lengths returns [Handle.PullLen] of every pull tensor.
func (h Handle) Lengths() ([]int64, error) {
	r, err := h.lengths()
	if err != nil {
		return nil, err
	}
	defer h.w.results.Unpin(h.id)
	return append([]int64(nil), r.Value.lengths...), nil
}

func (h Handle) pin() (*handles.Record[result], error) {
	if h.w == nil {
		return nil, errNoHandle
	}
	return h.w.results.Pin(h.id)
}

// finished pins the record of an exchange that has completed.
func (h Handle) finished() (*handles.Record[result], error) {
	r, err := h.pin()
	if err != nil {
		return nil, err
	}
	if !r.Done() {
		h.w.results.Unpin(h.id)
		return nil, errs.Invalid("handle: the exchange has not completed: wait for the handle first")
	}
	return r, nil
}

func (h Handle) lengths() (*handles.Record[result], error) {
	r, err := h.finished()
	if err != nil {
		return nil, err
	}
	if !r.Value.variable {
		h.w.results.Unpin(h.id)
		return nil, errs.Invalid("handle: no pull was marked as variable-length, so all were written whole: mark pulls in the exchange to get their lengths")
	}
	return r, nil
}

// describeTimeout makes the error of a wait that ended before its exchange. It says which servers have not answered,
// and for how long. Other errors it returns as they are.
func (h Handle) describeTimeout(err error) error {
	if err == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	record, pinErr := h.w.results.Pin(h.id)
	if pinErr != nil {
		return err
	}
	defer h.w.results.Unpin(h.id)
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	if x := record.Value.exchange; x != nil {
		if late := h.w.staging.departures.timeoutError(x, err); late != nil {
			return late
		}
		return x.timeoutError(err)
	}
	return err // the exchange has completed meanwhile, or with this very error
}

// timeoutError names the first server that has not answered, and counts the others. Under Worker.mu.
func (x *activeExchange) timeoutError(cause error) error {
	i := slices.IndexFunc(x.requests, func(r *request) bool { return r.state&unanswered != 0 })
	if i < 0 {
		return cause
	}
	first, others := x.requests[i], x.count(unanswered)-1
	progress := "delivered, not answered"
	if first.state&unacknowledged != 0 {
		progress = "not delivered"
	}
	why := "the wait was cancelled"
	if errors.Is(cause, context.DeadlineExceeded) {
		why = "the wait timed out"
	}
	text := fmt.Sprintf("%s: the request is %s for %v", why, progress, time.Duration(trace.Now()-x.start).Round(time.Millisecond))
	if others > 0 {
		text += fmt.Sprintf(", and %d of the other %d servers have not answered either", others, len(x.requests)-1)
	}
	text += ": wait again, the exchange is not over"
	return &stepvan.OpError{Op: "push_pull", Van: first.server.session.Van(), Peer: first.server.name, Err: errs.Late(text, cause)}
}

// result is what a handle tells once its exchange has completed.
type result struct {
	label    string
	exchange *activeExchange // until it has completed. Under Worker.mu
	pushes   int
	pulls    int     // per server
	variable bool    // lengths are known
	lengths  []int64 // bytes received, per pull tensor
	last     trace.Stamps
	each     []trace.Stamps // per server, when there are several
	arrival  *arrival       // of pulls of an accelerator; nil otherwise
}

// prepare readies a result that another exchange used before.
func (r *result) prepare(x *activeExchange) {
	r.label, r.exchange, r.pushes, r.pulls = x.label, x, len(x.push), len(x.pull)
	if r.variable = len(x.variable) > 0; r.variable {
		r.lengths = append(r.lengths[:0], make([]int64, len(x.pull))...)
	}
	r.each, r.arrival = r.each[:0], nil
}

// fill takes what x leaves.
func (r *result) fill(x *activeExchange) {
	r.exchange = nil
	if x.broadcast {
		r.pulls /= len(x.requests)
	}
	for _, q := range x.requests {
		q.stamps[trace.RequestStart] = x.start
		if len(x.requests) > 1 {
			r.each = append(r.each, q.stamps)
		}
	}
	r.last = x.last.stamps
}
