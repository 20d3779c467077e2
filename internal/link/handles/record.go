package handles

import (
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/slots"
)

// ID names a record: slot in the lower half, generation in the upper. 0 names none.
type ID = slots.ID

// Record is the result of one operation. T holds what the owner keeps with it.
type Record[T any] struct {
	// Value belongs to the owner until Finish, and is read-only from then on. It keeps its content when the record is
	// used again, so that its slices can be reused.
	Value T

	id   ID
	ev   progress.Event
	seen atomic.Bool // somebody was told err
	err  error       // written before ev is set
	next *Record[T]  // that finished after it
}

// ID returns the record's name. Only the owner may call it, until Finish.
func (r *Record[T]) ID() ID { return r.id }

// Done reports whether the record is finished.
func (r *Record[T]) Done() bool { return r.ev.IsSet() }

// Err returns the error that the operation finished with, and nil before. The error counts as seen from then on.
func (r *Record[T]) Err() error {
	if !r.ev.IsSet() || r.err == nil {
		return nil
	}
	r.seen.Store(true)
	return r.err
}
