package tensor

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/text"
)

// maxRegion bounds a single region, so that rounding never overflows.
const maxRegion = 1 << 46

// Allocator cuts regions from a few large shared-memory files. All methods may
// be called concurrently.
type Allocator struct {
	opt     Options
	page    int64
	unit    int64 // of arena sizes: the page they are made of
	classes [classCount]class
	idle    atomic.Int64  // bytes in classes
	misuses atomic.Uint64 // Release and Put too many
	atlas   atlas

	growing sync.Mutex // held to make an arena; taken before mu
	mu      sync.Mutex
	arenas  []*arena
	held    int64   // bytes of arenas; rises only under growing
	made    int     // arenas ever, to number their files
	first   *Region // list of those with memory, idle ones too
	closed  bool
	late    error // of the system, for Close to report
}

// NewAllocator makes an allocator. It takes memory only when it is asked for some.
func NewAllocator(opt Options) (*Allocator, error) {
	if err := opt.complete(); err != nil {
		return nil, err
	}
	a := &Allocator{opt: opt, page: int64(os.Getpagesize())}
	a.unit = a.page
	if opt.HugePages == HugePagesRequired {
		a.unit = shm.HugePageBytes
	}
	return a, nil
}

// Alloc returns a region of n bytes. It is aligned to 64 bytes, and to a page when it is a page or larger. The memory
// is not zeroed: it may hold what an earlier region held. The caller ends the region with [Region.Close].
func (a *Allocator) Alloc(n int) (*Region, error) {
	r, err := a.newRegion(int64(n), int64(n), noClass)
	if err != nil {
		return nil, err
	}
	a.trace(r)
	return r, nil
}

// AllocZeroed is [Allocator.Alloc] with the memory set to zero.
func (a *Allocator) AllocZeroed(n int) (*Region, error) {
	r, err := a.Alloc(n)
	if err == nil {
		clear(r.Bytes())
	}
	return r, err
}

// Empty returns a tensor in a region of its own, not zeroed. Closing its region frees it.
func (a *Allocator) Empty(d DType, dims ...int64) (Tensor, error) {
	shape, err := MakeShape(dims...)
	if err != nil {
		return Tensor{}, err
	}
	n, err := sizeOf(d, &shape)
	if err != nil {
		return Tensor{}, err
	}
	if n > maxRegion {
		return Tensor{}, a.tooLarge(n)
	}
	r, err := a.Alloc(int(n))
	if err != nil {
		return Tensor{}, err
	}
	return FromRegion(r, 0, d, shape)
}

// Zeros is [Allocator.Empty] with the memory set to zero.
func (a *Allocator) Zeros(d DType, dims ...int64) (Tensor, error) {
	t, err := a.Empty(d, dims...)
	if err == nil {
		clear(t.Bytes())
	}
	return t, err
}

// newRegion makes a region of n bytes with room for size.
func (a *Allocator) newRegion(n, size int64, class int) (*Region, error) {
	if n < 0 {
		return nil, errs.Invalid("a region of %d bytes", n)
	}
	if n > maxRegion {
		return nil, a.tooLarge(n)
	}
	s, err := a.reserve(max(size, 1))
	if err != nil {
		return nil, err
	}
	r := &Region{mem: s.bytes(), id: lastID.Add(1), alloc: a, span: s, class: class}
	r.n.Store(n)
	r.state.Store(uint64(firstLife))
	a.mu.Lock()
	a.link(r)
	a.mu.Unlock()
	return r, nil
}

func (a *Allocator) tooLarge(n int64) error {
	return errs.Invalid("allocator %q: a region of %d bytes; the largest is %d", text.Cut(a.opt.Name), n, int64(maxRegion))
}

// reserve finds n bytes in an arena, or makes one.
func (a *Allocator) reserve(n int64) (span, error) {
	align := int64(granule)
	if n >= a.page {
		align = a.page
	}
	n = roundUp(n, align)
	if s, ok, err := a.take(n, align); ok || err != nil {
		return s, err
	}
	a.growing.Lock()
	defer a.growing.Unlock()
	if s, ok, err := a.take(n, align); ok || err != nil {
		return s, err
	}
	return a.grow(n, align)
}

// take looks for room in the arenas that there are.
func (a *Allocator) take(n, align int64) (span, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return span{}, false, a.errClosed()
	}
	for _, ar := range a.arenas {
		if s, ok := ar.take(n, align); ok {
			return s, true, nil
		}
	}
	return span{}, false, nil
}

func (a *Allocator) errClosed() error {
	return fmt.Errorf("tensor: allocator %q is closed: %w", text.Cut(a.opt.Name), stepvan.ErrClosed)
}

// free returns the memory of an ended region to its arena.
func (a *Allocator) free(r *Region) error {
	a.mu.Lock()
	a.unlink(r)
	r.span.arena.give(r.span)
	drop := a.surplus(r.span.arena)
	a.mu.Unlock()
	return a.closeArenas(drop)
}

func (a *Allocator) link(r *Region) {
	r.next = a.first
	if a.first != nil {
		a.first.prev = r
	}
	a.first = r
}

func (a *Allocator) unlink(r *Region) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		a.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
}
