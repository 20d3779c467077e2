package parts

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// Retry says which errors of an attempt to dial may pass, and how often to try again.
type Retry struct {
	MayPass func(error) bool
	First   time.Duration // the pause after the first attempt, or up to half of it less; then it doubles
	Last    time.Duration // the longest pause
}

// Dial makes attempts until one succeeds, or fails with an error that does not pass, or ctx ends. life is the context
// of the van. Its end ends the attempts with stepvan.ErrClosed.
func Dial[T any](ctx, life context.Context, r Retry, attempt func(context.Context) (T, error)) (T, error) {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	var last error
	for pause := r.First; ; pause = min(2*pause, r.Last) {
		made, err := attempt(ctx)
		if err == nil {
			return made, nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // an attempt that the end of ctx cut short says less than the one before
		}
		if ctx.Err() == nil && r.MayPass(err) && sleep(ctx, pause/2+rand.N(pause/2)) {
			continue
		}
		switch {
		case life.Err() != nil:
			err = stepvan.ErrClosed
		case ctx.Err() != nil:
			err = fmt.Errorf("%w (last cause: %w)", errs.GaveUp(time.Since(began), context.Cause(ctx)), last)
		}
		return made, err
	}
}

// sleep reports whether ctx has lasted so long.
func sleep(ctx context.Context, pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
