package handles

import (
	"context"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
)

var errUnknown = fmt.Errorf("stepvan: the handle names no operation whose result is still kept: it was recycled, or never given: %w", stepvan.ErrStale)

// Pin finds the record of id and keeps it from being recycled until Unpin.
func (t *Table[T]) Pin(id ID) (*Record[T], error) {
	if r := t.slots.Pin(id); r != nil {
		return r, nil
	}
	return nil, errUnknown
}

// Unpin ends a Pin of that ID.
func (t *Table[T]) Unpin(id ID) { t.slots.Unpin(id) }

// Wait drives the transport until the operation has finished, and returns its error. An error that wraps the error of
// ctx says that the operation has not finished: the caller can wait again. An error that is stepvan.ErrStale says that
// id names no record.
func (t *Table[T]) Wait(ctx context.Context, id ID) error {
	r, err := t.Pin(id)
	if err != nil {
		return err
	}
	defer t.Unpin(id)
	if err := t.engine.Wait(ctx, &r.ev); err != nil && !r.ev.IsSet() {
		return err
	}
	return r.Err()
}

// WaitFor is Wait with a limit of time; negative means for ever. 0 allocations.
func (t *Table[T]) WaitFor(d time.Duration, id ID) error {
	r, err := t.Pin(id)
	if err != nil {
		return err
	}
	defer t.Unpin(id)
	if err := t.engine.WaitFor(d, &r.ev); err != nil && !r.ev.IsSet() {
		return err
	}
	return r.Err()
}

// Done reports whether the operation has finished; a recycled one has.
func (t *Table[T]) Done(id ID) bool {
	r, err := t.Pin(id)
	if err != nil {
		return true
	}
	defer t.Unpin(id)
	return r.Done()
}

// Err returns the error that the operation finished with. It returns nil before that, and for an operation without an
// error. It returns stepvan.ErrStale when id names no record.
func (t *Table[T]) Err(id ID) error {
	r, err := t.Pin(id)
	if err != nil {
		return err
	}
	defer t.Unpin(id)
	return r.Err()
}
