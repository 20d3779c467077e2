package postoffice

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
)

// stopper makes Stop idempotent.
type stopper struct {
	begun *atomic.Bool
	ended chan struct{}
}

func newStopper() stopper { return stopper{begun: new(atomic.Bool), ended: make(chan struct{})} }

// first reports whether the caller is the one that stops.
func (s stopper) first() bool { return s.begun.CompareAndSwap(false, true) }

// wait waits for the caller that stops.
func (s stopper) wait(ctx context.Context) error {
	begun := time.Now()
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stepvan: stop: another call is still waiting: %w", errs.GaveUp(time.Since(begun), ctx.Err()))
	}
}

func (s stopper) finish() { close(s.ended) }
