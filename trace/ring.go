package trace

import (
	"math/bits"
	"runtime"
	"slices"
	"sync/atomic"
)

// Ring keeps the last entries of a node in memory that is allocated once. The
// oldest is overwritten. All methods may be called from any goroutine; a nil
// Ring takes entries and keeps none.
type Ring struct {
	next    atomic.Uint64 // tickets given out
	dropped atomic.Uint64
	_       [48]byte // keeps what writers change off the line of slots
	slots   []slot
}

// slot is one entry and the word that guards it: (ticket+1)<<1, plus 1 while
// someone writes or reads the entry. 0 is empty. Whoever sets the lowest bit
// owns the entry until it stores the word again, so the race detector sees
// every access ordered.
type slot struct {
	state atomic.Uint64
	entry Entry
}

const busy = 1

// MaxRing is the largest capacity of a Ring: 2 GiB of memory.
const MaxRing = 1 << 24

// NewRing makes a Ring for at least capacity entries of 128 bytes: the next
// power of two, from 1 to MaxRing.
func NewRing(capacity int) *Ring {
	capacity = min(max(capacity, 1), MaxRing)
	return &Ring{slots: make([]slot, 1<<bits.Len(uint(capacity-1)))}
}

// Record keeps e. It never waits: where a slower writer or a Snapshot holds
// the place at this moment, e is dropped and counted. Budget: below 100 ns, 0
// allocations, three atomic operations.
func (r *Ring) Record(e Entry) {
	if r == nil {
		return
	}
	ticket := r.next.Add(1)
	s := &r.slots[(ticket-1)&uint64(len(r.slots)-1)]
	was := s.state.Load()
	if was&busy != 0 || was>>1 > ticket || !s.state.CompareAndSwap(was, was|busy) {
		r.dropped.Add(1)
		return
	}
	s.entry = e
	s.state.Store(ticket << 1)
}

// Cap is the number of entries that are kept.
func (r *Ring) Cap() int {
	if r == nil {
		return 0
	}
	return len(r.slots)
}

// Recorded counts the calls of Record.
func (r *Ring) Recorded() uint64 {
	if r == nil {
		return 0
	}
	return r.next.Load()
}

// Overwritten counts the entries that gave way to later ones.
func (r *Ring) Overwritten() uint64 {
	if n, c := r.Recorded(), uint64(r.Cap()); n > c {
		return n - c
	}
	return 0
}

// Dropped counts the entries that met a place in use (see Record).
func (r *Ring) Dropped() uint64 {
	if r == nil {
		return 0
	}
	return r.dropped.Load()
}

// Snapshot returns a copy of the entries that are kept, oldest first. Writers
// go on meanwhile. The copy belongs to the caller.
func (r *Ring) Snapshot() []Entry {
	if r == nil {
		return nil
	}
	type taken struct {
		ticket uint64
		entry  Entry
	}
	all := make([]taken, 0, min(r.Recorded(), uint64(r.Cap())))
	for i := range r.slots {
		if ticket, e, ok := r.slots[i].read(); ok {
			all = append(all, taken{ticket, e})
		}
	}
	slices.SortFunc(all, func(a, b taken) int {
		if a.ticket < b.ticket {
			return -1
		}
		return 1
	})
	entries := make([]Entry, len(all))
	for i := range all {
		entries[i] = all[i].entry
	}
	return entries
}

// read copies the entry out. A slot that stays busy (its writer lost its core)
// is left out rather than waited for.
func (s *slot) read() (ticket uint64, e Entry, ok bool) {
	for range 100 {
		was := s.state.Load()
		if was == 0 {
			return 0, e, false
		}
		if was&busy == 0 && s.state.CompareAndSwap(was, was|busy) {
			e = s.entry
			s.state.Store(was)
			return was >> 1, e, true
		}
		runtime.Gosched()
	}
	return 0, e, false
}
