package slots

import (
	"iter"
	"sync/atomic"
	"unsafe"

	"github.com/stepvan/stepvan/internal/prefetch"
)

// ID names a value: its index in the lower half, its generation in the upper. 0 names none.
type ID uint64

func makeID(index, generation uint32) ID { return ID(generation)<<32 | ID(index) }

// Index returns the number of the slot, which all its values have in turn.
func (id ID) Index() uint32 { return uint32(id) }

// Generation tells apart the values that had the slot.
func (id ID) Generation() uint32 { return uint32(id >> 32) }

const (
	// blockSlots is how many slots a block has.
	blockSlots = 64
	// growBy is the part of its blocks that a table adds when it grows, so that it grows rarely. mostBlocks bounds what
	// is made in vain.
	growBy     = 4
	mostBlocks = 64
)

// Table keeps values under IDs. The zero value is ready for use.
type Table[T any] struct {
	blocks atomic.Pointer[[][]slot[T]] // of blockSlots each; grows by copy, so that look-ups need no lock

	// Under the owner's lock.
	free *slot[T]
	made uint32 // slots that had a value once
	used int
}

// slot has one value at a time.
type slot[T any] struct {
	value T
	life  atomic.Uint64 // generation in the upper half, pins in the lower
	index uint32
	taken bool     // it has a value; under the owner's lock
	next  *slot[T] // in the list of free ones; under the owner's lock
}

func generationOf(life uint64) uint32 { return uint32(life >> 32) }

// Used returns how many values there are.
func (t *Table[T]) Used() int { return t.used }

// Len returns how many slots there are, free ones too.
func (t *Table[T]) Len() int { return int(t.made) }

// Take returns a value for the caller to fill in, and its ID. A value of an earlier ID comes as it was freed.
func (t *Table[T]) Take() (ID, *T) {
	s := t.free
	if s == nil {
		s = t.add()
	} else {
		t.free, s.next = s.next, nil
	}
	s.taken = true
	t.used++
	return makeID(s.index, generationOf(s.life.Load())), &s.value
}

// add returns a slot that had no value yet.
func (t *Table[T]) add() *slot[T] {
	s := t.at(t.made)
	if s == nil {
		t.grow()
		s = t.at(t.made)
	}
	t.made++
	return s
}

// grow makes blocks, all of them in one piece of memory.
func (t *Table[T]) grow() {
	var old [][]slot[T]
	if p := t.blocks.Load(); p != nil {
		old = *p
	}
	more := min(max(len(old)/growBy, 1), mostBlocks)
	made := make([]slot[T], more*blockSlots)
	for i := range made {
		made[i].index = t.made + uint32(i)
		made[i].life.Store(1 << 32) // 0 is the generation of no ID
	}
	all := make([][]slot[T], len(old), len(old)+more)
	copy(all, old)
	for len(made) > 0 {
		all, made = append(all, made[:blockSlots:blockSlots]), made[blockSlots:]
	}
	t.blocks.Store(&all)
}

// at returns a slot, or nil where none was made.
func (t *Table[T]) at(index uint32) *slot[T] {
	blocks := t.blocks.Load()
	if blocks == nil || uint64(index/blockSlots) >= uint64(len(*blocks)) {
		return nil
	}
	return &(*blocks)[index/blockSlots][index%blockSlots]
}

// Free ends an ID, and reports whether it did. It does nothing for an ID that names no value, or whose value is pinned.
func (t *Table[T]) Free(id ID) bool {
	s := t.at(id.Index())
	if s == nil || !s.taken {
		return false
	}
	next := id.Generation() + 1
	if next == 0 {
		next = 1
	}
	if id.Generation() == 0 || !s.life.CompareAndSwap(uint64(id.Generation())<<32, uint64(next)<<32) {
		return false
	}
	s.taken = false
	s.next, t.free = t.free, s
	t.used--
	return true
}

// Find returns the value that id names, or nil.
func (t *Table[T]) Find(id ID) *T {
	if s := t.at(id.Index()); s != nil && s.taken && generationOf(s.life.Load()) == id.Generation() {
		return &s.value
	}
	return nil
}

// Peek is Find for any goroutine. It may also return a free value, for an ID that the table has not given out yet.
func (t *Table[T]) Peek(id ID) *T {
	if s := t.at(id.Index()); s != nil && generationOf(s.life.Load()) == id.Generation() {
		return &s.value
	}
	return nil
}

// Pin is Peek, and keeps the ID from being freed until Unpin.
func (t *Table[T]) Pin(id ID) *T {
	s := t.at(id.Index())
	if s == nil {
		return nil
	}
	for {
		life := s.life.Load()
		if generationOf(life) != id.Generation() {
			return nil
		}
		if s.life.CompareAndSwap(life, life+1) {
			return &s.value
		}
	}
}

// Unpin ends a Pin that returned a value.
func (t *Table[T]) Unpin(id ID) { t.at(id.Index()).life.Add(^uint64(0)) }

// Named reports whether id names a value, or did once.
func (t *Table[T]) Named(id ID) bool {
	s := t.at(id.Index())
	if s == nil || id.Generation() == 0 {
		return false
	}
	g := generationOf(s.life.Load())
	return id.Generation() < g || id.Generation() == g && s.taken
}

// All yields all values. The caller may take and free values meanwhile.
func (t *Table[T]) All() iter.Seq2[ID, *T] {
	return func(yield func(ID, *T) bool) {
		for i := range t.made {
			if s := t.at(i); s.taken && !yield(makeID(i, generationOf(s.life.Load())), &s.value) {
				return
			}
		}
	}
}

// Prefetch begins to fetch a value of a table into the cache, which the caller will soon free.
func Prefetch[T any](value *T) {
	prefetch.Write(unsafe.Pointer(value), unsafe.Sizeof(slot[T]{})) // the value is the first field of its slot
}
