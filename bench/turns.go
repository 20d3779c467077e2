package bench

import (
	"context"
	"sync"
)

// seat is a place in a circle of measurements of which one acts at a time. The first has
// the turn at the beginning; whoever passes it gives it to the next that has not left.
type seat struct {
	circle *circle
	turn   chan struct{} // holds the turn until it is taken
	left   bool
}

type circle struct {
	mu     sync.Mutex
	seats  []*seat
	holder int // whose turn it is
}

func newCircle(size int) []*seat {
	c := &circle{}
	for range size {
		c.seats = append(c.seats, &seat{circle: c, turn: make(chan struct{}, 1)})
	}
	c.seats[0].turn <- struct{}{}
	return c.seats
}

// take waits for the turn. The error is the cause of the end of ctx.
func (s *seat) take(ctx context.Context) error {
	select {
	case <-s.turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// next passes the turn, and waits until it is back.
func (s *seat) next(ctx context.Context) error {
	s.circle.mu.Lock()
	s.circle.pass()
	s.circle.mu.Unlock()
	return s.take(ctx)
}

// leave gives the turn away for good, also one that has not been taken.
func (s *seat) leave() {
	s.circle.mu.Lock()
	defer s.circle.mu.Unlock()
	s.left = true
	if s.circle.seats[s.circle.holder] == s {
		s.circle.pass()
	}
}

// pass gives the turn to the next seat that is not left.
func (c *circle) pass() {
	for i := range c.seats {
		next := (c.holder + 1 + i) % len(c.seats)
		if !c.seats[next].left {
			c.holder = next
			c.seats[next].turn <- struct{}{}
			return
		}
	}
}
