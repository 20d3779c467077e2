package shmvan

import (
	"cmp"
	"math/bits"
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/shm"
)

// Behind the ring, the file of a one-sided van has the table of this side's grants, with one line for each grant.
// Behind the table it has a word for each line of the peer's table: how many times this side uses that grant at the
// moment.
//
//	id, file, offset, length, generation and rights<<32: uint64 each
//
// To use a grant, a side counts up and then finds the id in the line. To withdraw one, the other side wipes the id out
// and then finds the count 0. So a withdrawal waits for uses only, and takes no lock.
const (
	lineID     = 0
	lineFile   = 8
	lineOffset = 16
	lineLength = 24
	lineRights = 32

	minSlots = 64
	maxSlots = 1 << 16
	slotMask = maxSlots - 1 // the bits of an id that say which line it is in
)

// SideBytes is the memory that each side of a connection takes on its machine, with a ring of so many bytes. It has
// room for so many grants, rounded up to a power of two. 0 stands for the defaults.
func SideBytes(ring, grants int) int64 {
	return fileBytes(cmp.Or(ring, defaultRing), 1<<bits.Len(uint(cmp.Or(grants, defaultGrants)-1)))
}

// fileBytes is the size of a side's file.
func fileBytes(ring, slots int) int64 {
	return int64(ringStart) + int64(ring) + int64(slots)*(shm.LineBytes+8)
}

// table is a side's part of its file that is about grants.
type table struct {
	slots  int
	shift  int // slots are 8<<shift
	lines  []byte
	counts []byte
}

func tableOf(file []byte, ring, slots int) table {
	at := ringStart + ring
	return table{slots, bits.Len(uint(slots) / 16), file[at : at+slots*shm.LineBytes], file[at+slots*shm.LineBytes:]}
}

func (t *table) id(slot int) *atomic.Uint64 { return t.word(slot, lineID) }

func (t *table) word(slot, at int) *atomic.Uint64 { return shm.Word64(t.lines, slot*shm.LineBytes+at) }

// count is the word of the peer's slot. Neighbours lie in lines of their own, as long as there are few.
func (t *table) count(slot int) *atomic.Uint64 {
	mask := 1<<t.shift - 1
	return shm.Word64(t.counts, slot&mask*shm.LineBytes+slot>>t.shift*8)
}
