package particle

import (
	"context"

	"github.com/stepvan/stepvan/internal/link/progress"
)

// waiter is one wait of a goroutine. It is set once.
type waiter struct {
	event progress.Event
	woken chan struct{} // closed when it is set; nil for a wait that drives
}

// prepare chooses how to wait. A wait that drives moves the messages of the peer meanwhile, and is the fast one for
// what comes from there. The other one leaves the processor to the goroutines of this process.
func (w *waiter) prepare(kind progress.Kind, drives bool) {
	w.event.Kind = kind
	if !drives {
		w.woken = make(chan struct{})
	}
}

// set ends the wait.
func (w *waiter) set(e *progress.Engine) {
	if w.woken != nil {
		close(w.woken)
		return
	}
	e.Set(&w.event)
}

// wait waits until set is called, or ctx or the engine ends.
func (w *waiter) wait(ctx context.Context, e *progress.Engine) error {
	if w.woken == nil {
		return e.Wait(ctx, &w.event)
	}
	select {
	case <-w.woken:
		return nil
	default:
	}
	select {
	case <-w.woken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
