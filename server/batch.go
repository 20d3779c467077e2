package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/trace"
)

// Batch is what GetBatch returns: one request from each of several workers, ordered by rank.
type Batch struct {
	Requests []Request
}

// GetBatch waits for a batch by the policy and takes it: from each worker that has
// one waiting, the request that it issued first, whole. LockStep takes exactly one from
// every paired worker; AtLeast and AnyReady one from each that is ready.
//
// Being idle is no error: without a deadline in ctx it waits for ever. Errors:
//
//   - one that wraps ctx.Err(): the deadline passed; nothing was taken;
//   - a *stepvan.OpError naming a worker that is gone, when the policy cannot be met
//     without it: at once when it was lost (stepvan.ErrPeerLost), and when it left, as soon as
//     another worker's request waits in vain. Requests of the others stay, and AnyReady
//     or a smaller AtLeast takes them;
//   - stepvan.ErrRefused in a *stepvan.OpError naming a worker, with LockStep: this server had to refuse that worker's request of
//     this batch (larger than its chunk or than the pool, for example). The batch fails as a whole: the other workers'
//     requests of it end with stepvan.ErrRemote, and the next call gets the next request of every worker. The other
//     policies leave refused requests out, and so does LockStep those that were refused before its first call, on a
//     server whose Options.Policy is another one: what their worker sends next takes their place;
//   - stepvan.ErrClosed: every paired worker has left and no request is left, or the
//     server was stopped;
//   - stepvan.ErrBusy: another goroutine is in GetBatch.
//
// What a worker sent whole before it was gone is still handed out.
func (s *Server) GetBatch(ctx context.Context, p Policy) (Batch, error) {
	var b Batch
	err := s.GetBatchInto(ctx, p, &b)
	return b, err
}

// GetBatchInto is GetBatch into a batch whose slice is used again. 0 allocations
// in the steady state.
func (s *Server) GetBatchInto(ctx context.Context, p Policy, b *Batch) error {
	return s.getBatch(p, b, waiter{ctx: ctx})
}

// GetBatchFor is GetBatchInto with a limit of time in place of a context; negative
// means for ever. 0 allocations in the steady state.
func (s *Server) GetBatchFor(d time.Duration, p Policy, b *Batch) error {
	w := waiter{limit: d}
	if d > 0 {
		w.until = time.Now().Add(d)
	}
	return s.getBatch(p, b, w)
}

// waiter is the two ways to wait.
type waiter struct {
	ctx   context.Context // nil: until
	limit time.Duration
	until time.Time
}

func (w *waiter) wait(s *Server) error {
	if w.ctx != nil {
		return s.node.Engine().Wait(w.ctx, &s.arrival)
	}
	d := w.limit
	if d > 0 {
		d = max(0, time.Until(w.until))
	}
	return s.node.Engine().WaitFor(d, &s.arrival)
}

// vain is err, the end of a wait, with what it was for. A look without a wait needs none, and goes without the allocation.
func (w *waiter) vain(err error, ready, workers int) error {
	if w.ctx == nil && w.limit == 0 || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	return &stepvan.OpError{Op: "get_batch", Err: fmt.Errorf("requests of %d of %d workers are here: %w", ready, workers, err)}
}

func (s *Server) getBatch(p Policy, b *Batch, w waiter) error {
	b.Requests = b.Requests[:0]
	if p == Default {
		p = s.opt.Policy
	}
	for again := false; ; again = true {
		got, failed, err := s.attempt(p, b, again)
		if failed != nil {
			s.endRound(failed)
		}
		if got || err != nil {
			return err
		}
		if err := w.wait(s); err != nil && !s.arrival.IsSet() {
			s.mu.Lock()
			s.collecting = false
			ready := s.ready
			s.mu.Unlock()
			return w.vain(err, ready, len(s.workers))
		}
	}
}

// attempt takes a batch if the policy is met. If not, and no error stands against it, nobody else may
// try until this caller has again, and the arrival event tells when to. With an error the caller ends what has failed, if
// anything.
func (s *Server) attempt(p Policy, b *Batch, again bool) (got bool, failed *failedRound, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.collecting && !again {
		return false, nil, &stepvan.OpError{Op: "get_batch", Err: errBusy}
	}
	got, failed, err = s.collect(p, b)
	s.collecting = !got && err == nil
	return got, failed, err
}

// collect is attempt for the only one who tries. Under s.mu.
func (s *Server) collect(p Policy, b *Batch) (bool, *failedRound, error) {
	if s.closed {
		return false, nil, errClosed("get_batch")
	}
	need, err := s.need(p)
	if err != nil {
		return false, nil, err
	}
	s.absent = 0
	if p == LockStep {
		s.lockStep = true
	}
	if s.refusals > 0 && p != LockStep {
		s.dropRefusals()
	}
	if s.ready < need {
		if s.wanted, err = s.outlook(need); err != nil {
			return false, nil, err
		}
		s.arrival.Reset() // by the only one who waits for it
		return false, nil, nil
	}
	if s.refusals > 0 && p == LockStep {
		if failed := s.failRound(); failed != nil {
			return false, failed, failed.err
		}
	}
	now := trace.Now()
	for _, r := range s.workers {
		if r.first == nil {
			continue
		}
		in := s.pop(r)
		in.stage, in.processed = handed, now
		b.Requests = append(b.Requests, Request{ID: in.handler(), Worker: r.rank, in: in})
	}
	return true, nil, nil
}

// need returns how many workers must be ready.
func (s *Server) need(p Policy) (int, error) {
	all := len(s.workers)
	if all == 0 {
		return 0, errs.Invalid("get_batch: the server is not paired with any worker yet; start the node first")
	}
	if p == LockStep {
		return all, nil
	}
	if p < 1 || int(p) > all {
		return 0, errs.Invalid("get_batch: a batch of at least %d requests cannot be had from %d workers", int(p), all)
	}
	return int(p), nil
}
