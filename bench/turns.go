package bench

import (
	"context"
	"sync"
)

// turn is the part of one measurement in a rotation: one measurement acts at a time. The
// first has the turn at the beginning.
type turn struct {
	rotation *rotation
	token    chan struct{} // holds the turn until acquire takes it
	released bool
}

type rotation struct {
	mu     sync.Mutex
	turns  []*turn
	holder int // index of the one that acts
}

func newRotation(size int) []*turn {
	r := &rotation{}
	for range size {
		r.turns = append(r.turns, &turn{rotation: r, token: make(chan struct{}, 1)})
	}
	r.turns[0].token <- struct{}{}
	return r.turns
}

// acquire waits for the turn. The error is the cause of the end of ctx.
func (t *turn) acquire(ctx context.Context) error {
	select {
	case <-t.token:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// yield passes the turn on, and waits until it is back.
func (t *turn) yield(ctx context.Context) error {
	t.rotation.mu.Lock()
	t.rotation.pass()
	t.rotation.mu.Unlock()
	return t.acquire(ctx)
}

// release gives the turn up for good, even before acquire took it.
func (t *turn) release() {
	t.rotation.mu.Lock()
	defer t.rotation.mu.Unlock()
	t.released = true
	if t.rotation.turns[t.rotation.holder] == t {
		t.rotation.pass()
	}
}

// pass gives the turn to the next measurement that has not released it.
func (r *rotation) pass() {
	for i := range r.turns {
		next := (r.holder + 1 + i) % len(r.turns)
		if !r.turns[next].released {
			r.holder = next
			r.turns[next].token <- struct{}{}
			return
		}
	}
}
