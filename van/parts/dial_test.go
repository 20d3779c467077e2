package parts

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

var (
	errPasses = errors.New("nobody listens")
	errStays  = errors.New("no such name")
)

// dialing counts attempts: the first few fail with what passes, the next with last.
type dialing struct {
	times []time.Duration // of the attempts
	fails int
	last  error
}

func (d *dialing) dial(ctx, life context.Context) (int, error) {
	began := time.Now()
	r := Retry{MayPass: func(err error) bool { return errors.Is(err, errPasses) }, First: 8 * time.Millisecond, Last: 30 * time.Millisecond}
	return Dial(ctx, life, r, func(context.Context) (int, error) {
		d.times = append(d.times, time.Since(began))
		if len(d.times) <= d.fails {
			return 0, errPasses
		}
		return 7, d.last
	})
}

func TestDialTriesAgainWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dialing{fails: 5}
		got, err := d.dial(t.Context(), t.Context())
		require.NoError(t, err)
		require.Equal(t, 7, got)
		const ms = time.Millisecond
		for i, most := range []time.Duration{8 * ms, 16 * ms, 30 * ms, 30 * ms, 30 * ms} {
			pause := d.times[i+1] - d.times[i]
			require.LessOrEqual(t, pause, most)
			require.GreaterOrEqual(t, pause, most/2)
		}
	})
}

func TestDialEndsWithAnErrorThatStays(t *testing.T) {
	d := dialing{fails: 1, last: errStays}
	_, err := d.dial(t.Context(), t.Context())
	require.Equal(t, errStays, err)
	require.Len(t, d.times, 2)
}

func TestDialEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dialing{fails: 1000}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := d.dial(ctx, t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errPasses)
		require.EqualError(t, err, "gave up after 1s (last cause: nobody listens)")
	})
}

// An attempt that the end of the context has cut short says less than the one before.
func TestDialKeepsTheErrorOfAWholeAttempt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	attempts := 0
	r := Retry{MayPass: func(error) bool { return true }, First: 2, Last: 2}
	_, err := Dial(ctx, t.Context(), r, func(ctx context.Context) (int, error) {
		if attempts++; attempts == 1 {
			return 0, errPasses
		}
		cancel()
		return 0, ctx.Err()
	})
	require.ErrorIs(t, err, errPasses)
	require.ErrorContains(t, err, "was cancelled")
}

func TestDialEndsWithItsVan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, end)
		d := dialing{fails: 1000}
		_, err := d.dial(t.Context(), life)
		require.Equal(t, stepvan.ErrClosed, err)
	})
}
