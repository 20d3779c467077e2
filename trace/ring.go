package trace

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/stepvan/stepvan/internal/prefetch"
)

// Ring keeps the latest entries of a node, in memory that is allocated once. A new entry overwrites the oldest. All
// methods may be called from any goroutine. A nil Ring keeps no entries.
type Ring struct {
	mu    sync.Mutex // held for one entry by writers, for a block of entries by readers
	next  uint64     // entries recorded
	slots []slot
}

// slot is an entry, padded to two cache lines.
type slot struct {
	entry Entry
	_     [128 - unsafe.Sizeof(Entry{})]byte
}

// maxRing is the largest capacity of a Ring: 2 GiB of memory.
const maxRing = 1 << 24

// NewRing makes a [Ring] for capacity entries. It rounds the capacity up to a power of two, from 1 to 2^24. An entry
// takes 128 bytes.
func NewRing(capacity int) *Ring {
	capacity = min(max(capacity, 1), maxRing)
	return &Ring{slots: make([]slot, 1<<bits.Len(uint(capacity-1)))}
}

// Record adds e to the ring. It waits for other calls of Record. It also waits for a Snapshot, for a few us at most.
// Budget: 20 ns, 0 allocations.
func (r *Ring) Record(e Entry) {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.at(r.next).entry = e
	r.next++
	prefetch.Write(unsafe.Pointer(r.at(r.next)), unsafe.Sizeof(slot{})) // long out of the cache when its turn comes
	r.mu.Unlock()
}

// at returns the place of the entry with so many before it.
func (r *Ring) at(n uint64) *slot { return &r.slots[n&uint64(len(r.slots)-1)] }

// capacity is the number of entries that are kept.
func (r *Ring) capacity() int {
	if r == nil {
		return 0
	}
	return len(r.slots)
}

// recorded counts the calls of Record.
func (r *Ring) recorded() uint64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// oldest is the first entry that is kept of n.
func (r *Ring) oldest(n uint64) uint64 { return n - min(n, uint64(r.capacity())) }

// block is how many entries a Snapshot copies in one go.
const block = 64

// Snapshot returns a copy of the entries in the ring, oldest first. Goroutines may call Record meanwhile. An entry that
// they overwrite before Snapshot copies it is missing. The copy belongs to the caller.
func (r *Ring) Snapshot() []Entry {
	end := r.recorded()
	n := r.oldest(end)
	entries := make([]Entry, 0, end-n)
	for n < end {
		entries, n = r.copyBlock(entries, n, end)
	}
	return entries
}

// copyBlock appends some of the entries n to end, and returns the number of the next one.
func (r *Ring) copyBlock(dst []Entry, n, end uint64) ([]Entry, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = max(n, r.oldest(r.next))
	for until := min(n+block, end); n < until; n++ {
		dst = append(dst, r.at(n).entry)
	}
	return dst, n
}
