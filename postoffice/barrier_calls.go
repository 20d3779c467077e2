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
	open  map[uint64]*barrierCall
	busy  map[barrierKey]bool
	ended error // no call can succeed any more
}

type barrierCall struct {
	ev  progress.Event
	err error // before ev
}

func newBarrierCalls(e *progress.Engine) *barrierCalls {
	return &barrierCalls{engine: e, open: map[uint64]*barrierCall{}, busy: map[barrierKey]bool{}}
}

// wait enters the round of k and waits until the round is complete or broken, or until ctx ends. When
// ctx ends, it withdraws from the round. The function send delivers a frame to the scheduler, in order.
func (c *barrierCalls) wait(ctx context.Context, k barrierKey, send func(frame)) error {
	w, id, err := c.begin(k)
	if err != nil {
		return err
	}
	defer c.end(k)
	send(encode(opBarrier, id, k.body()))
	late := c.engine.Wait(ctx, &w.ev)
	if late == nil {
		return w.err
	}
	if !c.giveUp(id) {
		return w.err // resolved while the wait ended
	}
	send(encode(opWithdraw, id, k.body()))
	return late
}

func (c *barrierCalls) begin(k barrierKey) (*barrierCall, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended != nil:
		return nil, 0, c.ended
	case c.busy[k]:
		return nil, 0, errs.Invalid("barrier over %s: another goroutine of this node waits in it already: one caller per node and group at a time", k.group)
	}
	c.busy[k] = true
	c.last++
	w := &barrierCall{}
	c.open[c.last] = w
	return w, c.last, nil
}

func (c *barrierCalls) end(k barrierKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, k)
}

// giveUp ends a call without a result; false when it has one.
func (c *barrierCalls) giveUp(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, open := c.open[id]
	delete(c.open, id)
	return open
}

// resolve ends the call with a result. It ignores ids for which no call waits.
func (c *barrierCalls) resolve(id uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.open[id]; w != nil {
		c.finish(id, w, err)
	}
}

// fail ends all calls, and those to come, with err. The first one counts.
func (c *barrierCalls) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = err
	}
	for id, w := range c.open {
		c.finish(id, w, err)
	}
}

func (c *barrierCalls) finish(id uint64, w *barrierCall, err error) {
	delete(c.open, id)
	w.err = err
	c.engine.Set(&w.ev)
}

// barrierError gives an error of the barrier its context, if it has none.
func barrierError(err error, g Group) error {
	var op *stepvan.OpError
	if err == nil || errors.As(err, &op) || errors.Is(err, stepvan.ErrInvalid) {
		return err
	}
	return &stepvan.OpError{Op: "barrier over " + g.String(), Err: err}
}
