package tensor

import (
	"slices"

	"github.com/stepvan/stepvan/internal/shm"
)

// span is a piece of an arena.
type span struct {
	arena *arena
	off   int64
	n     int64
}

// extent is a free piece of an arena.
type extent struct{ off, n int64 }

// arena cuts one shared-memory file into spans, first fit, and joins
// neighbours when they come back. The allocator's lock guards it.
type arena struct {
	mem  *shm.Memory
	id   uint64 // of the file, for peers that map it
	size int64
	free []extent // by offset, never adjacent to each other
	used int64
	own  bool // made for one region, and holds no other
}

func newArena(mem *shm.Memory, own bool) *arena {
	size := mem.Size()
	return &arena{mem: mem, id: lastFile.Add(1), size: size, free: []extent{{0, size}}, own: own}
}

// take cuts n bytes at a multiple of align, both multiples of the granule.
func (a *arena) take(n, align int64) (span, bool) {
	for i, e := range a.free {
		start := roundUp(e.off, align)
		if start+n > e.off+e.n {
			continue
		}
		front := extent{e.off, start - e.off}
		back := extent{start + n, e.off + e.n - start - n}
		a.replace(i, front, back)
		a.used += n
		return span{a, start, n}, true
	}
	return span{}, false
}

// replace puts what is left of free extent i in its place.
func (a *arena) replace(i int, front, back extent) {
	switch {
	case front.n > 0 && back.n > 0:
		a.free[i] = back
		a.free = slices.Insert(a.free, i, front)
	case front.n > 0:
		a.free[i] = front
	case back.n > 0:
		a.free[i] = back
	default:
		a.free = slices.Delete(a.free, i, i+1)
	}
}

// give returns a span that take cut.
func (a *arena) give(s span) {
	i, _ := slices.BinarySearchFunc(a.free, s.off, func(e extent, off int64) int {
		if e.off < off {
			return -1
		}
		return 1
	})
	a.used -= s.n
	e := extent{s.off, s.n}
	joinsPrev := i > 0 && a.free[i-1].off+a.free[i-1].n == e.off
	joinsNext := i < len(a.free) && e.off+e.n == a.free[i].off
	switch {
	case joinsPrev && joinsNext:
		a.free[i-1].n += e.n + a.free[i].n
		a.free = slices.Delete(a.free, i, i+1)
	case joinsPrev:
		a.free[i-1].n += e.n
	case joinsNext:
		a.free[i] = extent{e.off, e.n + a.free[i].n}
	default:
		a.free = slices.Insert(a.free, i, e)
	}
}

func (s span) bytes() []byte { return s.arena.mem.Bytes()[s.off : s.off+s.n : s.off+s.n] }
