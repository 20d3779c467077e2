package postoffice

import (
	"context"
	"errors"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link/progress"
)

// barrierCalls are the calls of this process that wait in barriers: of an Office, or of the Scheduler itself.
type barrierCalls struct {
	engine *progress.Engine

	mu    sync.Mutex
	last  uint64 // request ids, never reused
	open  map[barrierKey]*barrierCall
	ended error // no call can succeed any more
}

type barrierCall struct {
	request uint64
	ev      progress.Event
	done    bool
	err     error // once done
}

func newBarrierCalls(e *progress.Engine) *barrierCalls {
	return &barrierCalls{engine: e, open: map[barrierKey]*barrierCall{}}
}

// wait is a call of Barrier by a worker, a server or the scheduler. The function send delivers a frame to the
// scheduler, in order.
func (c *barrierCalls) wait(ctx context.Context, caller stepvan.Role, k barrierKey, send func(frame)) error {
	if err := k.Group.check(caller); err != nil {
		return err
	}
	err := c.pass(ctx, k, send)
	var op *stepvan.OpError
	if err == nil || errors.As(err, &op) || errors.Is(err, stepvan.ErrInvalid) {
		return err
	}
	return &stepvan.OpError{Op: "barrier over " + k.Group.String(), Err: err}
}

// pass enters the round of k and waits until the round is complete or broken, or until ctx ends. When ctx ends, it
// withdraws from the round.
func (c *barrierCalls) pass(ctx context.Context, k barrierKey, send func(frame)) error {
	w, err := c.begin(k)
	if err != nil {
		return err
	}
	defer c.end(k)
	send(encode(opBarrier, w.request, k))
	late := c.engine.Wait(ctx, &w.ev)
	if !c.giveUp(w) {
		return w.err // perhaps resolved while the wait ended
	}
	send(encode(opWithdraw, w.request, k))
	return late
}

func (c *barrierCalls) begin(k barrierKey) (*barrierCall, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended != nil:
		return nil, c.ended
	case c.open[k] != nil:
		return nil, errs.Invalid("barrier over %s: another goroutine of this node waits in it already: let one goroutine call it at a time", k.Group)
	}
	c.last++
	c.open[k] = &barrierCall{request: c.last}
	return c.open[k], nil
}

// end lets the next call of k begin.
func (c *barrierCalls) end(k barrierKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, k)
}

// giveUp ends a call without a result. It returns false when the call has one.
func (c *barrierCalls) giveUp(w *barrierCall) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := !w.done
	w.done = true
	return open
}

// resolve ends the call with a result. It ignores requests for which no call waits.
func (c *barrierCalls) resolve(request uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.open {
		if w.request == request {
			c.finish(w, err)
		}
	}
}

// broken ends the call whose round cannot become complete, as the scheduler says.
func (c *barrierCalls) broken(f frame, scheduler string) error {
	return receive(f, func(b *failure) error {
		c.resolve(f.request, b.err("barrier", scheduler))
		return nil
	})
}

// fail ends all calls, and those to come, with err. The first one counts.
func (c *barrierCalls) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = err
	}
	for _, w := range c.open {
		c.finish(w, err)
	}
}

func (c *barrierCalls) finish(w *barrierCall, err error) {
	if !w.done {
		w.done, w.err = true, err
		c.engine.Set(&w.ev)
	}
}
