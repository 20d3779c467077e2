package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/trace"
)

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
	defer h.w.results.Unpin(record)
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	if x := record.Value.exchange; x != nil {
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
	if first.state&sending != 0 {
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
	return &stepvan.OpError{Op: "push_pull", Van: first.server.session.Van(), Peer: first.server.name, Err: &timeoutError{text, cause}}
}

// timeoutError is the end of a wait before that of its exchange.
type timeoutError struct {
	text  string
	cause error // wraps that of the context
}

// Error says what is missing.
func (e *timeoutError) Error() string { return e.text }

// Unwrap returns the cause, for [errors.Is].
func (e *timeoutError) Unwrap() error { return e.cause }

// Timeout reports whether the time limit has passed, as [net.Error] does.
func (e *timeoutError) Timeout() bool { return errors.Is(e.cause, context.DeadlineExceeded) }
