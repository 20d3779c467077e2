package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/trace"
)

// late has the error of a wait that has ended before the request say which servers have not answered, and for how long.
func (h Handle) late(err error) error {
	if err == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	r, pinErr := h.w.results.Pin(h.id)
	if pinErr != nil {
		return err
	}
	defer h.w.results.Unpin(r)
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	if c := r.Value.call; c != nil {
		return c.late(err)
	}
	return err // it has completed meanwhile, or with this very error
}

// late names the first server that has not answered, and counts the others. Under Worker.mu.
func (c *call) late(cause error) error {
	var first *part
	others := -1
	for _, p := range c.parts {
		if p.answered {
			continue
		}
		if first == nil {
			first = p
		}
		others++
	}
	if first == nil {
		return cause
	}
	state := "not delivered"
	if first.done {
		state = "delivered, not answered"
	}
	why := "the wait was cancelled"
	if errors.Is(cause, context.DeadlineExceeded) {
		why = "the wait timed out"
	}
	text := fmt.Sprintf("%s: the request is %s for %v", why, state, time.Duration(trace.Now()-c.start).Round(time.Millisecond))
	if others > 0 {
		text += fmt.Sprintf(", and %d of the other %d servers have not answered either", others, len(c.parts)-1)
	}
	text += "; it can be waited for again"
	s := first.server
	return &stepvan.OpError{Op: "push_pull", Van: s.session.Van(), Peer: s.name, Err: errs.Late(text, cause)}
}
