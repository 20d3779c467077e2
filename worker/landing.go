package worker

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/staging"
)

// landings are answers on their way from memory of the host to accelerators. Worker.mu guards the queue.
type landings struct {
	w *Worker
	queue[landing]
}

// landing is what one server has answered to an exchange. It lands when it has come, and does not wait for answers of
// other servers.
type landing struct {
	x       *activeExchange
	in      []staging.Move
	pull    int  // the first that it is for
	written bool // devices have written some of it to the accelerator
}

// arrival tells when the answers for pulls of an accelerator are on their way there.
type arrival struct {
	queued progress.Event // the copies are queued, or the exchange is over
	copies atomic.Pointer[staging.Copies]
}

func newArrival() *arrival {
	a := new(arrival)
	a.queued.Kind = progress.Answer
	return a
}

// begin begins to copy what has come as the answer to r, of a staged exchange. Under Worker.mu.
func (l *landings) begin(r *request) {
	x := r.exchange
	if x.err != nil || x.state.completed() {
		return
	}
	n := r.landing()
	if len(n.in) == 0 && !n.written {
		return
	}
	x.staged.landing++
	if l.add(n) {
		go l.copyAll(n)
	}
}

// landing lists the copies for the answer to r. What devices have written to the accelerator is not copied.
func (r *request) landing() *landing {
	x := r.exchange
	n, s := &landing{x: x}, x.staged
	for _, i := range r.pulls {
		j := s.pullOf(i)
		if j < 0 {
			continue
		}
		if len(n.in) == 0 && !n.written {
			n.pull = i
		}
		if s.direct.lends[j] && !s.direct.onHost[j] {
			n.written = true
			continue
		}
		m := s.in[j]
		if len(x.variable) > 0 {
			m.Host = m.Host[:x.record.Value.lengths[i]]
		}
		if len(m.Host) > 0 {
			n.in = append(n.in, m)
		}
	}
	return n
}

// hasLanded reports whether nothing of the answers to x is on its way to the accelerator. Under Worker.mu.
func (l *landings) hasLanded(x *activeExchange) bool {
	s := x.staged
	if s.landing > 0 {
		return false
	}
	if s.arrival != nil {
		l.w.link.Engine().Set(&s.arrival.queued)
	}
	return true
}

// copyAll copies answers to accelerators, in the order in which they came, until none is left.
func (l *landings) copyAll(n *landing) {
	for n != nil {
		n = l.end(n, l.copyIn(n))
	}
	l.w.staging.departures.closeStager()
}

func (l *landings) copyIn(n *landing) error {
	s := n.x.staged
	if n.written {
		if err := staging.Flush(s.device); err != nil {
			return err
		}
	}
	if len(n.in) == 0 {
		return nil
	}
	copies, err := l.w.staging.stager.BeginIn(s.device, n.in)
	if err != nil {
		return err
	}
	l.noteQueued(n, copies)
	return copies.Await()
}

// noteQueued lets streams wait for the copies of n, where it has what was left of the exchange. The other copies are
// over.
func (l *landings) noteQueued(n *landing, copies *staging.Copies) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if s := n.x.staged; s.landing == 1 && n.x.pending&unanswered == 0 {
		s.arrival.copies.Store(copies)
		l.w.link.Engine().Set(&s.arrival.queued)
	}
}

// end ends a landing, and completes its exchange with the last one. It returns the next landing, or nil.
func (l *landings) end(n *landing, err error) *landing {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	x := n.x
	x.staged.landing--
	if err != nil {
		x.fail(stagedError(fmt.Sprintf("pull tensor %d (key %d): the copy to %s has failed", n.pull, x.pullKeys[n.pull], x.staged.device), err))
	}
	next := l.done()
	l.w.advance(x)
	return next
}

// of returns the first landing of x, or nil. Under Worker.mu.
func (l *landings) of(x *activeExchange) *landing {
	for _, n := range l.list {
		if n.x == x {
			return n
		}
	}
	return nil
}

// WaitOn waits until the answers are on their way to the accelerator, and has the stream wait for them. Work that is
// queued to the stream from then on finds them in the pull tensors. The tensors are borrowed until the handle
// completes, a moment later. For an exchange without pulls of an accelerator WaitOn is [Handle.Wait].
//
// If a copy fails after WaitOn has returned nil, the handle says so.
func (h Handle) WaitOn(ctx context.Context, s device.Stream) error {
	r, err := h.pin()
	if err != nil {
		return err
	}
	defer h.w.results.Unpin(h.id)
	a := r.Value.arrival
	if a == nil || r.Done() {
		return h.Wait(ctx)
	}
	if err := h.w.link.Engine().Wait(ctx, &a.queued); err != nil && !a.queued.IsSet() {
		return h.describeTimeout(err)
	}
	if copies := a.copies.Load(); copies != nil {
		waits, err := copies.Follow(s)
		if waits || err != nil {
			return err
		}
	}
	return h.Wait(ctx)
}
