package handles

import (
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/link/progress"
)

// ID names a record: slot in the lower half, generation in the upper. 0 names none.
type ID uint64

func makeID(slot, generation uint32) ID { return ID(generation)<<32 | ID(slot) }

func (id ID) slot() uint32       { return uint32(id) }
func (id ID) generation() uint32 { return uint32(id >> 32) }

// Record is the result of one operation. T holds what the owner keeps with it.
type Record[T any] struct {
	// Value belongs to the owner until Finish, and is read-only from then on. It keeps its content when the record is
	// used again, so that its slices can be reused.
	Value T

	life atomic.Uint64 // generation in the upper half, pins in the lower
	ev   progress.Event
	seen atomic.Bool // somebody was told err
	slot uint32
	err  error // written before ev is set
	next *Record[T]
}

// ID returns the record's name until it is recycled.
func (r *Record[T]) ID() ID { return makeID(r.slot, generationOf(r.life.Load())) }

func generationOf(life uint64) uint32 { return uint32(life >> 32) }

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

// pin keeps the record of that generation from being recycled.
func (r *Record[T]) pin(generation uint32) bool {
	for {
		l := r.life.Load()
		if generationOf(l) != generation {
			return false
		}
		if r.life.CompareAndSwap(l, l+1) {
			return true
		}
	}
}

// retire ends the generation, unless somebody has pinned it.
func (r *Record[T]) retire() bool {
	l := r.life.Load()
	g := generationOf(l) + 1
	if g == 0 {
		g = 1 // 0 is the generation of no ID
	}
	return uint32(l) == 0 && r.life.CompareAndSwap(l, uint64(g)<<32)
}
