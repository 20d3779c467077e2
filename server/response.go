package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link/handles"
)

// response is the record of one Respond or RespondVec. Guarded by Server.mu.
type response struct {
	pending int   // messages without acknowledgement
	err     error // the first failure
}

func (r *response) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// settle counts one message, and reports whether it was the last.
func (r *response) settle() bool {
	r.pending--
	return r.pending == 0
}

// Response tells when the workers have acknowledged what one Respond or
// RespondVec sent: until then its tensors are borrowed. A small value that may be
// copied and used from any goroutine, or ignored. It stays valid until
// Options.Handles later ones have been acknowledged; then its methods return stepvan.ErrStale.
type Response struct {
	s  *Server
	id handles.ID
}

var errNoResponse = fmt.Errorf("stepvan: the zero Response names nothing: %w", stepvan.ErrStale)

// Wait drives the node until every worker has acknowledged. The error is an
// *stepvan.OpError naming a worker that was lost before, or wraps ctx.Err(): then it can
// be waited for again.
func (r Response) Wait(ctx context.Context) error {
	if r.s == nil {
		return errNoResponse
	}
	return r.late(r.s.responses.Wait(ctx, r.id))
}

// WaitFor is Wait with a limit of time; negative means for ever. 0 allocations.
func (r Response) WaitFor(d time.Duration) error {
	if r.s == nil {
		return errNoResponse
	}
	err := r.s.responses.WaitFor(d, r.id)
	if d == 0 {
		return err
	}
	return r.late(err)
}

// late has the error of a wait that has ended in vain say what it was for.
func (r Response) late(err error) error {
	if err == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) || r.Done() {
		return err
	}
	return &stepvan.OpError{Op: "respond", Err: fmt.Errorf("not every worker has acknowledged it: %w", err)}
}

// Done reports whether the tensors are the caller's again.
func (r Response) Done() bool { return r.s == nil || r.s.responses.Done(r.id) }

// Err returns the error of a response that is done, and nil before.
func (r Response) Err() error {
	if r.s == nil {
		return errNoResponse
	}
	return r.s.responses.Err(r.id)
}

// ID is the response as a number, for bindings. Never 0.
func (r Response) ID() uint64 { return uint64(r.id) }

// Response makes a response from its number. One that the server never gave is stale.
func (s *Server) Response(id uint64) Response { return Response{s: s, id: handles.ID(id)} }
