package tensor

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/stepvan/stepvan"
)

// Region is a piece of memory outside the Go heap. It is memory of an [Allocator], or foreign memory with an owner of
// its own. Any goroutine may call its methods.
//
// The caller that asked for a region owns it and ends it with [Region.Close] or [Allocator.Put]. Operations on the
// memory hold it with [Region.Retain] until [Region.Release].
type Region struct {
	state atomic.Uint64 // a life
	n     atomic.Int64  // bytes asked for: at most len(mem)
	mem   []byte        // all that the region has; the slice changes only with the lives of a Window
	id    uint64

	device Device  // the zero Device for memory of the host
	start  uintptr // of memory of another device, where mem is nil
	window *Window // of foreign memory, nil otherwise

	// The rest is the allocator's. It is nil or zero for foreign memory.
	alloc      *Allocator
	span       span
	class      int // of the pool, noClass for a region that never goes there
	prev, next *Region
	site       []uintptr // callers that asked for it, with Options.Debug
}

// lastID makes ids unique in the process, whichever allocator or foreign owner
// a region has: peers and caches tell memory apart by them.
var lastID atomic.Uint64

var (
	errRegionClosed = fmt.Errorf("tensor: the region is closed; a tensor of it cannot be used: %w", stepvan.ErrClosed)
	errRegionStale  = fmt.Errorf("tensor: the region was closed and its memory is in use for something else: %w", stepvan.ErrStale)
	errRegionBusy   = fmt.Errorf("tensor: the region is used by outstanding operations; wait for them before closing it: %w", stepvan.ErrBusy)
)

// ID returns the number of the region. It is unique in the process and never 0.
func (r *Region) ID() uint64 { return r.id }

// Generation returns how often the allocator has given out this region. A tensor of an earlier generation is stale.
func (r *Region) Generation() uint32 { return r.life().generation() }

// Len returns the size of the region in bytes.
func (r *Region) Len() int { return int(r.n.Load()) }

// Allocated reports whether the memory is of an [Allocator].
func (r *Region) Allocated() bool { return r.alloc != nil }

// Device returns what holds the memory.
func (r *Region) Device() Device { return r.device.orCPU() }

// address returns where the memory begins, as a number.
func (r *Region) address() uintptr {
	if r.start != 0 {
		return r.start
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(r.mem)))
}

// Bytes returns the memory, or nil when the region is closed, or the processor does not reach it ([Region.Device]). The
// program may use the slice until Close or Put. After that the memory may have another use, or may not be mapped any
// more.
func (r *Region) Bytes() []byte {
	if !r.life().open() || r.start != 0 {
		return nil
	}
	n := r.n.Load()
	return r.mem[:n:n]
}

// FD returns the descriptor of the file that holds the memory, and the offset of the region in it, in bytes. The
// allocator owns the descriptor, which is valid while the region is open. ok is false for foreign memory. It is also
// false where the system denies memory files to this process. It is for stepvan itself.
func (r *Region) FD() (fd int, off int64, ok bool) {
	if r.alloc == nil || !r.life().open() {
		return -1, 0, false
	}
	if fd = r.span.arena.mem.FD(); fd < 0 {
		return -1, 0, false
	}
	return fd, r.span.off, true
}
