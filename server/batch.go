package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/trace"
)

// Batch is what GetBatch returns: one request from each of several workers, ordered by rank.
type Batch struct {
	Requests []Request
}

// GetBatch waits until the policy is met, and takes a batch: of each worker with a complete request, the one that the
// worker issued first. LockStep takes exactly one from every paired worker. AtLeast and AnyReady take one from each
// worker that is ready. Without a deadline in ctx, GetBatch waits for ever, also when no request comes. Errors:
//
//   - one that wraps ctx.Err(): the deadline passed, and nothing was taken;
//   - a [*stepvan.OpError] that names a worker: the worker is gone, and the policy cannot be met without it. GetBatch
//     returns it at once for a lost worker (stepvan.ErrPeerLost). For a worker that left it does so as soon as another
//     worker's request waits in vain. The requests of the others stay, and AnyReady or a smaller AtLeast takes them;
//   - stepvan.ErrRefused in a [*stepvan.OpError] that names a worker, with LockStep: this server refused that worker's
//     request of this batch. It was larger than its chunk or than the pool, for example. The batch fails as a whole.
//     The other workers' requests of it end with stepvan.ErrRemote, and the next call takes the next request of every
//     worker. The other policies leave refused requests out. So does LockStep with
//     those refused before its first call on a server whose Options.Policy is another one: what their worker sends
//     next takes their place;
//   - stepvan.ErrClosed: every paired worker has left and no request remains, or the server was stopped;
//   - stepvan.ErrBusy: another goroutine is in GetBatch.
//
// GetBatch still hands out what a worker sent completely before it was gone.
func (s *Server) GetBatch(ctx context.Context, p stepvan.Policy) (Batch, error) {
	var b Batch
	err := s.GetBatchInto(ctx, p, &b)
	return b, err
}

// GetBatchInto is [Server.GetBatch] into a batch whose slice is used again. 0 allocations in the steady state.
func (s *Server) GetBatchInto(ctx context.Context, p stepvan.Policy, b *Batch) error {
	return s.batches.get(p, b, batchWait{ctx: ctx})
}

// GetBatchFor is [Server.GetBatchInto] with a limit of time instead of a context. A negative limit means for ever. 0
// allocations in the steady state.
func (s *Server) GetBatchFor(d time.Duration, p stepvan.Policy, b *Batch) error {
	w := batchWait{limit: d}
	if d > 0 {
		w.until = time.Now().Add(d)
	}
	return s.batches.get(p, b, w)
}

// batchWait tells how long a caller of GetBatch waits: as ctx says, or without one as limit says.
type batchWait struct {
	ctx   context.Context
	limit time.Duration
	until time.Time // when a limit above 0 is reached
}

func (w *batchWait) wait(b *batcher) error {
	engine := b.s.transport.Engine()
	if w.ctx != nil {
		return engine.Wait(w.ctx, &b.arrival)
	}
	d := w.limit
	if d > 0 {
		d = max(0, time.Until(w.until))
	}
	return engine.WaitFor(d, &b.arrival)
}

// timeout is err, the end of a wait, with what the wait was for. A look without a wait returns err as it is, without an
// allocation.
func (w *batchWait) timeout(err error, ready, workers int) error {
	if w.ctx == nil && w.limit == 0 || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	return &stepvan.OpError{Op: "get_batch", Err: fmt.Errorf("requests of %d of %d workers are here: %w", ready, workers, err)}
}

// batcher queues complete requests for each worker and makes batches of them. Server.mu guards it.
type batcher struct {
	s          *Server
	arrival    progress.Event // wakes GetBatch
	collecting bool           // a goroutine is in GetBatch
	lockStep   bool           // from the first GetBatch(LockStep), or from the start when that is the policy of the server
	ready      int            // workers with a request in their queue
	wanted     int            // how many of them wake GetBatch
	refusals   int            // of the entries in all queues
}

func (b *batcher) get(p stepvan.Policy, batch *Batch, w batchWait) error {
	batch.Requests = batch.Requests[:0]
	if p == stepvan.DefaultPolicy {
		p = b.s.opt.Policy
	}
	for again := false; ; again = true {
		if done, err := b.try(p, batch, again); done {
			return err
		}
		if err := w.wait(b); err != nil && !b.arrival.IsSet() {
			b.s.mu.Lock()
			b.collecting = false
			ready := b.ready
			b.s.mu.Unlock()
			return w.timeout(err, ready, len(b.s.workers))
		}
	}
}

// try takes a batch if the policy is met. When it reports false the caller waits for arrival and tries again. Until
// then other callers get stepvan.ErrBusy.
func (b *batcher) try(p stepvan.Policy, batch *Batch, again bool) (done bool, err error) {
	var later deferredWork
	b.s.mu.Lock()
	if b.collecting && !again {
		err = &stepvan.OpError{Op: "get_batch", Err: fmt.Errorf("another goroutine waits for a batch: call it from one goroutine: %w", stepvan.ErrBusy)}
	} else {
		done, err = b.take(p, batch, &later)
		b.collecting = !done && err == nil
	}
	b.s.mu.Unlock()
	if err != nil {
		later.run(b.s)
	}
	return done || err != nil, err
}

// take takes a batch, or sets what arrival waits for. Under Server.mu, called by try alone.
func (b *batcher) take(p stepvan.Policy, batch *Batch, later *deferredWork) (bool, error) {
	if b.s.closed {
		return false, errClosed("get_batch")
	}
	need, err := b.workersNeeded(p)
	if err != nil {
		return false, err
	}
	b.s.stop.idleLooks = 0
	if p == stepvan.LockStep {
		b.lockStep = true
	}
	if b.refusals > 0 && p != stepvan.LockStep {
		b.dropRefusals()
	}
	if b.ready < need {
		if b.wanted, err = b.wakeThreshold(need); err != nil {
			return false, err
		}
		b.arrival.Reset() // only this goroutine waits for it
		return false, nil
	}
	if b.refusals > 0 && p == stepvan.LockStep {
		if err := b.failBatch(later); err != nil {
			return false, err
		}
	}
	now := trace.Now()
	for _, w := range b.s.workers {
		if w.first == nil {
			continue
		}
		r := b.pop(w)
		r.on(eventTake)
		r.processed = now
		batch.Requests = append(batch.Requests, Request{ID: RequestID(r.id), Worker: w.rank, slot: r})
	}
	for _, r := range batch.Requests {
		r.slot.alone = len(batch.Requests) == 1
	}
	return true, nil
}

// workersNeeded returns how many workers must have a request.
func (b *batcher) workersNeeded(p stepvan.Policy) (int, error) {
	all := len(b.s.workers)
	if all == 0 {
		return 0, errs.Invalid("get_batch: the server is not paired with any worker yet: start the node first")
	}
	if p == stepvan.LockStep {
		return all, nil
	}
	if p < 1 || int(p) > all {
		return 0, errs.Invalid("get_batch: a batch of at least %d requests is impossible with %d workers", int(p), all)
	}
	return int(p), nil
}

// push queues a complete request, or the entry of a refused one.
func (b *batcher) push(r *requestSlot) {
	w := r.from
	if w.last == nil {
		w.first = r
		b.ready++
	} else {
		w.last.next = r
	}
	w.last = r
	if r.state == requestRefused {
		w.refusals++
		b.refusals++
	}
}

// pop takes the first request off the queue of w.
func (b *batcher) pop(w *workerPeer) *requestSlot {
	r := w.first
	w.first, r.next = r.next, nil
	if w.first == nil {
		w.last = nil
		b.ready--
	}
	if r.state == requestRefused {
		w.refusals--
		b.refusals--
	}
	return r
}

// enough reports whether GetBatch has what it waits for.
func (b *batcher) enough() bool { return b.ready >= b.wanted }

// wakeThreshold returns how many workers with a request wake GetBatch. It returns an error when need of them are
// impossible while the workers that are gone stay away.
func (b *batcher) wakeThreshold(need int) (int, error) {
	lost, left, able := b.countWorkers()
	if able >= need {
		return need, nil
	}
	if able == 0 {
		return 0, allGone(lost, left, need)
	}
	// A lost worker is an error at once. A worker that left is one when a request waits for it.
	missing := lost
	if missing == nil && b.ready > 0 {
		missing = left
	}
	if missing == nil {
		return 1, nil
	}
	return 0, missing.failure("get_batch", fmt.Errorf("a batch needs requests of %d workers and %d remain; the other policies serve those: %w", need, able, missing.gone))
}

// countWorkers counts the workers that have a request or may send one. Of those that cannot, it returns the first one
// that was lost and the first one that left.
func (b *batcher) countWorkers() (lost, left *workerPeer, able int) {
	for _, w := range b.s.workers {
		switch {
		case w.first != nil || w.gone == nil:
			able++
		case w.left():
			if left == nil {
				left = w
			}
		case lost == nil:
			lost = w
		}
	}
	return lost, left, able
}

// allGone is the error when no worker can send a request any more. It is an orderly end unless a lost worker matters:
// the batch needed more than one worker, or no worker left with a goodbye.
func allGone(lost, left *workerPeer, need int) error {
	if lost != nil && (left == nil || need > 1) {
		return lost.failure("get_batch", fmt.Errorf("every paired worker is gone: %w", lost.gone))
	}
	return errs.Closed("get_batch: every paired worker is gone, so no request will follow")
}
