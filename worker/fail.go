package worker

import "github.com/stepvan/stepvan/internal/errs"

// Fail ends the work with all servers: what is in flight fails with cause, and so does
// every later request, with the peer that cause names if it is a *stepvan.OpError. It is for a loss that concerns the whole cluster, so sessions stay
// open; what servers still answer is received and dropped. Any goroutine.
func (w *Worker) Fail(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return
	}
	w.failed = errs.Ended("push_pull", cause)
	for _, p := range w.parts {
		// A call that is still being submitted fails when SendAll has returned.
		if c := p.call; c != nil && c.submitted && !c.finished {
			c.fail(w.failed)
			w.settle(c)
		}
	}
}
