package numbers

import (
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/slots"
)

// ID is the number of a value: generation in the upper half, then 8 bits of kind and 24 of slot. 0 names nothing.
type ID uint64

const (
	slotBits = 24
	maxSlots = 1 << slotBits
	kindMask = 0xff << slotBits
)

func (id ID) kind() uint8 { return uint8(id >> slotBits) }

// slot is the ID without its kind.
func (id ID) slot() slots.ID { return slots.ID(id &^ kindMask) }

// Table keeps values of one kind. The zero value is ready.
type Table[T any] struct {
	Kind uint8 // tells the numbers of several tables apart

	mu    sync.Mutex // held for all but Peek
	slots slots.Table[atomic.Pointer[entry[T]]]
	swept map[uint32]ID // the last of each slot that TakeIf took
}

type entry[T any] struct {
	id    ID
	value T
}

// Put keeps v and returns its number, 0 when the table is full.
func (t *Table[T]) Put(v T) ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots.Used() == maxSlots {
		return 0
	}
	slot, p := t.slots.Take()
	id := ID(slot) | ID(t.Kind)<<slotBits
	p.Store(&entry[T]{id, v})
	return id
}

// Get returns the value of a number. 0 allocations, no lock.
func (t *Table[T]) Get(id ID) (v T, ok bool) {
	if p := t.slots.Peek(id.slot()); p != nil {
		if e := p.Load(); e != nil && e.id == id {
			return e.value, true
		}
	}
	return v, false
}

// Take is Get, and ends the number. Of several concurrent calls one gets the value.
func (t *Table[T]) Take(id ID) (v T, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok = t.Get(id); ok {
		t.drop(id)
	}
	return v, ok
}

// drop frees the slot of a valid number. Under mu.
func (t *Table[T]) drop(id ID) {
	t.slots.Find(id.slot()).Store(nil)
	t.slots.Free(id.slot())
}

// TakeIf takes all values for which want is true.
func (t *Table[T]) TakeIf(want func(T) bool) (taken []T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for slot, p := range t.slots.All() {
		if e := p.Load(); want(e.value) {
			taken = append(taken, e.value)
			if t.swept == nil {
				t.swept = map[uint32]ID{}
			}
			t.swept[slot.Index()] = e.id
			t.drop(e.id)
		}
	}
	return taken
}

// Fate is the state of a number.
type Fate uint8

// Fates. A swept number is Swept until a further sweep of its slot; then it is Taken.
const (
	Unknown Fate = iota // it never was a number of this table
	Named               // it names a value
	Taken               // by Take
	Swept               // by TakeIf
)

// Fate returns the state of a number.
func (t *Table[T]) Fate(id ID) Fate {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id.kind() != t.Kind || !t.slots.Named(id.slot()) {
		return Unknown
	}
	if _, ok := t.Get(id); ok {
		return Named
	}
	if t.swept[id.slot().Index()] == id {
		return Swept
	}
	return Taken
}
