package bulk

import (
	"sync"

	"github.com/stepvan/stepvan/internal/affinity"
)

const (
	// least is where REP MOVSB wins both ways. It copies what another core will read faster from 4 KiB on. It copies
	// what another core has written faster only from here on.
	least = 32 << 10
	// step is the most that is copied at a time past the caches: Go's runtime cannot stop a goroutine in assembly.
	step = 1 << 20
	// largestCached is the largest copy that stays in the caches of a processor that does not report them.
	largestCached = 16 << 20
	// lineBytes is the alignment of the destination from which the processor moves whole cache lines.
	lineBytes = 64
)

// cached is the largest copy that goes into the caches: with its source it fills the last one.
var cached = sync.OnceValue(func() int64 {
	if last := (affinity.Machine{}).Caches(0).Last; last > 0 {
		return last / 2
	}
	return largestCached
})

// PassesCaches reports whether so many bytes are written past the caches, for those that do not copy but convert them.
func PassesCaches(whole int64) bool { return whole > cached() }

// Copy copies src to dst, as many bytes as the shorter has, and returns how many. It does what copy does, overlaps
// included. Any goroutine. Another core that sees what is stored after the return sees the bytes.
// Budget: 0 allocations; 3 ns beside the copy.
func Copy(dst, src []byte) int { return CopyPart(dst, src, int64(len(src))) }

// CopyPart is Copy for a part of whole bytes, which are copied one part after the other. If the caches cannot hold all
// of them, none of them need be there.
func CopyPart(dst, src []byte, whole int64) int {
	n := min(len(dst), len(src))
	if n < least || !assembly || overlap(dst[:n], src[:n]) {
		return copy(dst, src)
	}
	past := PassesCaches(whole)
	if !past && !fast {
		return copy(dst, src)
	}
	done := copy(dst[:toLine(dst)], src)
	if !past {
		move(&dst[done], &src[done], uintptr(n-done))
		return n
	}
	for done+lineBytes <= n {
		k := min(step, (n-done)&^(lineBytes-1))
		movePast(&dst[done], &src[done], uintptr(k))
		done += k
	}
	copy(dst[done:n], src[done:])
	return n
}
