package handles

import (
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/slots"
)

// Table holds records. The owner calls Open, Finish, Recycle and Drop under a lock of its own. Everything else may be
// called concurrently.
type Table[T any] struct {
	engine *progress.Engine
	kind   progress.Kind
	keep   int
	forget func(*Record[T], error)
	unseen atomic.Uint64

	// Under the owner's lock, except to pin records.
	slots    slots.Table[Record[T]]
	oldest   *Record[T] // of the finished records, in order
	latest   *Record[T]
	finished int
}

// New makes a table whose waits drive e and are of one kind. A finished record stays until keep later ones have
// finished and the owner has called Recycle. When the table recycles a record whose error nobody has seen, it calls
// forget, if that is not nil. The function forget must not call the table.
func New[T any](e *progress.Engine, kind progress.Kind, keep int, forget func(r *Record[T], err error)) *Table[T] {
	return &Table[T]{engine: e, kind: kind, keep: max(keep, 1), forget: forget}
}

// Unseen counts the errors that nobody saw.
func (t *Table[T]) Unseen() uint64 { return t.unseen.Load() }

// Records returns how many records there are, free ones too. Under the owner's lock.
func (t *Table[T]) Records() int { return t.slots.Len() }

// Open returns an unfinished record, for the caller to finish or to drop.
func (t *Table[T]) Open() *Record[T] {
	id, r := t.slots.Take()
	r.id = id
	if r.ev.Kind != t.kind {
		r.ev.Kind = t.kind // of a record that was never open, for which nobody waits
	}
	return r
}

// Drop takes back a record whose ID was not handed out.
func (t *Table[T]) Drop(r *Record[T]) {
	if !t.slots.Free(r.id) {
		t.append(r) // somebody has guessed the ID, and pinned it
	}
}

// Finish ends the operation, and wakes the goroutines that wait for it. Exactly once for each Open.
func (t *Table[T]) Finish(r *Record[T], err error) {
	r.err = err
	t.engine.Set(&r.ev)
	t.append(r)
}

// Recycle takes back the oldest finished records, while more than keep of them are there. The owner calls it once for
// each Open, when nobody waits: Finish leaves it to the owner, since its caller is about to wake somebody.
func (t *Table[T]) Recycle() {
	// Two at most: enough to catch up after pinned records had another turn.
	for range 2 {
		if t.finished > t.keep {
			t.recycle()
		}
	}
}

// append puts a finished record behind the others.
func (t *Table[T]) append(r *Record[T]) {
	if t.latest == nil {
		t.oldest = r
	} else {
		t.latest.next = r
	}
	t.latest = r
	t.finished++
}

// recycle frees the oldest finished record. One that is pinned gets another turn.
func (t *Table[T]) recycle() {
	r := t.oldest
	t.oldest, r.next = r.next, nil
	if t.oldest == nil {
		t.latest = nil
	} else {
		slots.Prefetch(t.oldest) // it is recycled next, and is out of the cache by then
	}
	t.finished--
	if !t.slots.Free(r.id) {
		t.append(r)
		return
	}
	if r.err != nil && !r.seen.Load() {
		t.unseen.Add(1)
		if t.forget != nil {
			t.forget(r, r.err)
		}
	}
	r.err = nil
	if r.seen.Load() {
		r.seen.Store(false)
	}
	r.ev.Reset()
}
