package handles

import (
	"sync/atomic"
	"unsafe"

	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/prefetch"
)

const pageRecords = 128

type page[T any] [pageRecords]Record[T]

// Table holds records. The owner calls Open, Finish and Drop under a lock of its own. Everything else may be called
// concurrently.
type Table[T any] struct {
	engine *progress.Engine
	keep   int
	forget func(*Record[T], error)
	unseen atomic.Uint64
	pages  atomic.Pointer[[]*page[T]] // grows by copy, so that look-ups need no lock

	// Under the owner's lock.
	free     *Record[T]
	oldest   *Record[T] // finished records, in order
	latest   *Record[T]
	finished int
}

// New makes a table whose waits drive e. A finished record stays until keep later ones have finished. When the table
// recycles a record whose error nobody has seen, it calls forget, if that is not nil. The function forget must not call
// the table.
func New[T any](e *progress.Engine, keep int, forget func(r *Record[T], err error)) *Table[T] {
	t := &Table[T]{engine: e, keep: max(keep, 1), forget: forget}
	t.pages.Store(new([]*page[T]))
	return t
}

// Unseen counts the errors that nobody saw.
func (t *Table[T]) Unseen() uint64 { return t.unseen.Load() }

// Records returns how many records there are, free ones too.
func (t *Table[T]) Records() int { return len(*t.pages.Load()) * pageRecords }

// Open returns an unfinished record, for the caller to finish or to drop.
func (t *Table[T]) Open() *Record[T] {
	if t.free == nil {
		t.grow()
	}
	r := t.free
	t.free, r.next = r.next, nil
	return r
}

// Drop takes back a record whose ID was not handed out.
func (t *Table[T]) Drop(r *Record[T]) {
	r.retire()
	t.release(r)
}

// Finish ends the operation, and wakes the goroutines that wait for it. Exactly once for each Open.
func (t *Table[T]) Finish(r *Record[T], err error) {
	r.err = err
	t.engine.Set(&r.ev)
	t.append(r)
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
		prefetch.Write(unsafe.Pointer(t.oldest), unsafe.Sizeof(*t.oldest)) // it is recycled next, and is out of the cache by then
	}
	t.finished--
	if !r.retire() {
		t.append(r)
		return
	}
	if r.err != nil && !r.seen.Load() {
		t.unseen.Add(1)
		if t.forget != nil {
			t.forget(r, r.err)
		}
	}
	t.release(r)
}

func (t *Table[T]) release(r *Record[T]) {
	r.err = nil
	if r.seen.Load() {
		r.seen.Store(false)
	}
	r.ev.Reset()
	r.next, t.free = t.free, r
}

func (t *Table[T]) grow() {
	old := *t.pages.Load()
	p := new(page[T])
	pages := append(old[:len(old):len(old)], p)
	for i := pageRecords - 1; i >= 0; i-- {
		r := &p[i]
		r.slot = uint32(len(old)*pageRecords + i)
		r.life.Store(1 << 32)
		r.next, t.free = t.free, r
	}
	t.pages.Store(&pages)
}
