package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link/handles"
)

// responseState is what the server knows of one Respond or RespondVec. Guarded by Server.mu.
type responseState struct {
	pending int   // messages without acknowledgement
	err     error // the first failure
}

func (r *responseState) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// countDown counts one message, and reports whether it was the last.
func (r *responseState) countDown() bool {
	r.pending--
	return r.pending == 0
}

// Response tells when the workers have acknowledged what one Respond or RespondVec has sent. Until then its tensors are
// borrowed. It is a small value. Any goroutine may copy it, use it or ignore it. It is valid until Options.Handles
// later responses are acknowledged; then its methods return stepvan.ErrStale.
type Response struct {
	s  *Server
	id handles.ID
}

var errNoResponse = fmt.Errorf("stepvan: the zero Response names nothing: %w", stepvan.ErrStale)

// Wait drives the transport until every worker has acknowledged. The error is a [*stepvan.OpError] that names a worker
// that was lost before. Or it wraps ctx.Err(); then Wait can be called again.
func (r Response) Wait(ctx context.Context) error {
	if r.s == nil {
		return errNoResponse
	}
	return r.timeout(r.s.responder.records.Wait(ctx, r.id))
}

// WaitFor is [Response.Wait] with a limit of time; negative means for ever. 0 allocations.
func (r Response) WaitFor(d time.Duration) error {
	if r.s == nil {
		return errNoResponse
	}
	err := r.s.responder.records.WaitFor(d, r.id)
	if d == 0 {
		return err
	}
	return r.timeout(err)
}

// timeout has the error of a wait that ended early say what the wait was for.
func (r Response) timeout(err error) error {
	if err == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) || r.Done() {
		return err
	}
	if late := r.describePromise(err); late != nil {
		return late
	}
	return &stepvan.OpError{Op: "respond", Err: fmt.Errorf("not every worker has acknowledged it: %w", err)}
}

// Done reports whether the tensors are the caller's again.
func (r Response) Done() bool { return r.s == nil || r.s.responder.records.Done(r.id) }

// Err returns the error of a response that is done, and nil before.
func (r Response) Err() error {
	if r.s == nil {
		return errNoResponse
	}
	return r.s.responder.records.Err(r.id)
}

// ID returns the response as a number, for bindings. It is never 0.
func (r Response) ID() uint64 { return uint64(r.id) }

// Response makes a [Response] from its number. A number that the server never gave makes a stale one.
func (s *Server) Response(id uint64) Response { return Response{s: s, id: handles.ID(id)} }
