package slots

import (
	"sync"
	"sync/atomic"
)

// ID is the number of a value: generation in the upper half, then 8 bits of kind and 24 of slot. 0 names nothing.
type ID uint64

const (
	slotBits = 24
	maxSlots = 1 << slotBits
)

func makeID(generation uint32, kind uint8, slot int) ID {
	return ID(generation)<<32 | ID(kind)<<slotBits | ID(slot)
}

func (id ID) slot() int { return int(id & (maxSlots - 1)) }

func (id ID) generation() uint32 { return uint32(id >> 32) }

// Table keeps values of one kind. The zero value is ready.
type Table[T any] struct {
	Kind uint8 // tells the numbers of several tables apart

	slots atomic.Pointer[[]*slot[T]] // grows by copy, so that look-ups need no lock

	mu   sync.Mutex
	free []int
}

type slot[T any] struct {
	entry atomic.Pointer[entry[T]] // nil: free
	last  uint32                   // generation that was given out last; under mu
	swept uint32                   // generation that TakeIf took last; under mu
}

type entry[T any] struct {
	id    ID
	value T
}

// Put keeps v and returns its number, 0 when the table is full.
func (t *Table[T]) Put(v T) ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, ok := t.vacant()
	if !ok {
		return 0
	}
	s := (*t.slots.Load())[i]
	s.last++
	if s.last == 0 {
		s.last = 1 // generation 0 of slot 0 would be the number 0
	}
	id := makeID(s.last, t.Kind, i)
	s.entry.Store(&entry[T]{id, v})
	return id
}

// vacant takes a free slot. Under mu.
func (t *Table[T]) vacant() (int, bool) {
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		return i, true
	}
	all := t.all()
	if len(all) == maxSlots {
		return 0, false
	}
	grown := append(all[:len(all):len(all)], new(slot[T]))
	t.slots.Store(&grown)
	return len(all), true
}

func (t *Table[T]) all() []*slot[T] {
	if p := t.slots.Load(); p != nil {
		return *p
	}
	return nil
}

// Get returns the value of a number. 0 allocations, no lock.
func (t *Table[T]) Get(id ID) (v T, ok bool) {
	all := t.all()
	i := id.slot()
	if i >= len(all) {
		return v, false
	}
	e := all[i].entry.Load()
	if e == nil || e.id != id {
		return v, false
	}
	return e.value, true
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
	i := id.slot()
	t.all()[i].entry.Store(nil)
	t.free = append(t.free, i)
}

// TakeIf takes all values for which want is true.
func (t *Table[T]) TakeIf(want func(T) bool) (taken []T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.all() {
		if e := s.entry.Load(); e != nil && want(e.value) {
			taken = append(taken, e.value)
			s.swept = e.id.generation()
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
	all, i, g := t.all(), id.slot(), id.generation()
	if i >= len(all) || id != makeID(g, t.Kind, i) || g == 0 || g > all[i].last {
		return Unknown
	}
	s := all[i]
	switch e := s.entry.Load(); {
	case e != nil && e.id == id:
		return Named
	case s.swept == g:
		return Swept
	}
	return Taken
}
