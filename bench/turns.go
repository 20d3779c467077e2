package bench

import "context"

// turn is the part of one measurement in a rotation: one measurement acts at a time. The
// first has the turn at the beginning. One goroutine at a time uses a turn.
type turn struct {
	waiting chan *turn    // those that wait, in order
	token   chan struct{} // holds the turn until acquire takes it
	acting  bool
}

func newRotation(size int) (turns []*turn) {
	waiting := make(chan *turn, size)
	for range size {
		t := &turn{waiting: waiting, token: make(chan struct{}, 1)}
		turns = append(turns, t)
		waiting <- t
	}
	turns[0].pass()
	return turns
}

// acquire waits for the turn. The error is the cause of the end of ctx.
func (t *turn) acquire(ctx context.Context) error {
	select {
	case <-t.token:
		t.acting = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// yield passes the turn on, and waits until it is back.
func (t *turn) yield(ctx context.Context) error {
	t.waiting <- t
	t.pass()
	return t.acquire(ctx)
}

// release gives the turn up for good. Without the turn it waits for it, so that it can be passed on.
func (t *turn) release() {
	if !t.acting {
		<-t.token
	}
	t.pass()
}

// pass gives the turn to the measurement that has waited longest.
func (t *turn) pass() {
	t.acting = false
	select {
	case next := <-t.waiting:
		next.token <- struct{}{}
	default: // no other measurement is left
	}
}
