package postoffice

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
)

// stopper runs a Stop once. Further calls wait for it.
type stopper struct {
	begun atomic.Bool
	ended chan struct{}
}

// once runs stop in the first call.
func (s *stopper) once(ctx context.Context, stop func() error) error {
	if s.begun.CompareAndSwap(false, true) {
		defer close(s.ended)
		return stop()
	}
	begun := time.Now()
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop: another call is still waiting: %w", errs.GaveUp(time.Since(begun), ctx.Err()))
	}
}
