package tensor

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// maxRegion bounds a single region, so that rounding never overflows.
const maxRegion = 1 << 46

// Allocator gives regions of a few large shared-memory files. Any goroutine may call its methods.
type Allocator struct {
	opt     Options
	arenas  arenaList
	classes [classCount]class
	idle    atomic.Int64 // bytes in classes
	regions regionList
	misuses atomic.Uint64 // superfluous calls of Release and Put
}

// NewAllocator makes an allocator. The allocator takes memory from the system only when a caller asks for a region.
func NewAllocator(opt Options) (*Allocator, error) {
	if err := opt.complete(); err != nil {
		return nil, err
	}
	a := &Allocator{opt: opt}
	a.arenas.init(&a.opt)
	return a, nil
}

// Alloc returns a region of n bytes. It begins at a multiple of 64 bytes. A region of a page or more begins at a page.
// Alloc does not zero the memory, which may hold the bytes of an earlier region. The caller ends the region with
// [Region.Close].
func (a *Allocator) Alloc(n int) (*Region, error) {
	r, err := a.newRegion(int64(n), int64(n), noClass)
	if err != nil {
		return nil, err
	}
	a.trace(r)
	return r, nil
}

// AllocFile returns a region as [Allocator.Alloc] does, in a memory file that holds nothing else. A peer that may map
// the file reaches this region alone. The file takes whole pages and a descriptor, so it is for few and large regions.
func (a *Allocator) AllocFile(n int) (*Region, error) {
	r, err := a.makeRegion(int64(n), int64(n), noClass, true)
	if err != nil {
		return nil, err
	}
	a.trace(r)
	return r, nil
}

// AllocZeroed returns a region as [Allocator.Alloc] does, and sets its memory to zero.
func (a *Allocator) AllocZeroed(n int) (*Region, error) {
	r, err := a.Alloc(n)
	if err == nil {
		clear(r.Bytes())
	}
	return r, err
}

// Empty returns a tensor in a region of its own. It does not zero the memory. The caller frees it with [Region.Close]
// of [Tensor.Region].
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

// Zeros returns a tensor as [Allocator.Empty] does, and sets its memory to zero.
func (a *Allocator) Zeros(d DType, dims ...int64) (Tensor, error) {
	t, err := a.Empty(d, dims...)
	if err == nil {
		clear(t.Bytes())
	}
	return t, err
}

// newRegion makes a region of n bytes with room for size.
func (a *Allocator) newRegion(n, size int64, class int) (*Region, error) {
	return a.makeRegion(n, size, class, false)
}

// makeRegion is newRegion that can make a file for the region alone.
func (a *Allocator) makeRegion(n, size int64, class int, own bool) (*Region, error) {
	if n < 0 {
		return nil, errs.Invalid("a region of %d bytes", n)
	}
	if n > maxRegion {
		return nil, a.tooLarge(n)
	}
	s, err := a.reserve(max(size, 1), own)
	if err != nil {
		return nil, err
	}
	r := &Region{mem: s.bytes(), id: lastID.Add(1), alloc: a, span: s, class: class}
	r.n.Store(n)
	r.state.Store(uint64(firstLife))
	a.regions.add(r)
	return r, nil
}

func (a *Allocator) tooLarge(n int64) error {
	return errs.Invalid("allocator %q: a region of %d bytes; the largest is %d", text.Cut(a.opt.Name), n, int64(maxRegion))
}

// reserve finds n bytes in an arena, or makes one; with own it makes one for them alone.
func (a *Allocator) reserve(n int64, own bool) (span, error) {
	w := want{n: n, align: granule, own: own}
	if n >= a.arenas.page {
		w.align = a.arenas.page
	}
	w.n = roundUp(n, w.align)
	if s, ok, err := a.arenas.take(w); ok || err != nil {
		return s, err
	}
	a.arenas.growing.Lock()
	defer a.arenas.growing.Unlock()
	if s, ok, err := a.arenas.take(w); ok || err != nil {
		return s, err
	}
	return a.grow(w)
}

// grow makes an arena with room for what is wanted and cuts it from there. When the limit is reached, it first frees
// what the pool keeps, and then empty arenas. The caller holds growing.
func (a *Allocator) grow(w want) (span, error) {
	size, fits := a.arenas.nextSize(w)
	if !fits {
		if err := a.freeIdle(false); err != nil {
			return span{}, err
		}
		if s, ok, err := a.arenas.take(w); ok || err != nil {
			return s, err
		}
		if err := a.Trim(); err != nil {
			return span{}, err
		}
		if size, fits = a.arenas.nextSize(w); !fits {
			size = roundUp(w.n, a.arenas.unit)
		}
		if !a.arenas.fits(size) {
			return span{}, a.errFull(w.n)
		}
	}
	return a.arenas.grow(size, w)
}

func (a *Allocator) errFull(n int64) error {
	s := a.Stats()
	return fmt.Errorf("tensor: allocator %q has taken %d bytes (%d in use) of the %d that %s allows, and %d more do not fit; close regions or raise %s: %w",
		text.Cut(a.opt.Name), s.HeldBytes, s.UsedBytes, a.opt.MaxBytes, a.opt.MaxBytesSetting, n, a.opt.MaxBytesSetting, stepvan.ErrWouldBlock)
}

// free returns the memory of an ended region to its arena.
func (a *Allocator) free(r *Region) error {
	a.regions.remove(r)
	return a.arenas.give(r.span)
}

// Trim returns idle memory to the system. That is the memory that [Allocator.Put] has kept, and all memory files
// without a region in use.
func (a *Allocator) Trim() error { return errors.Join(a.freeIdle(false), a.arenas.closeEmpty()) }

// Close ends the allocator, which then gives no more regions. Close returns all idle memory to the system. Regions that
// are still in use stay usable, and Close returns a [LeakError] that lists them. Their memory goes back to the system
// when they end. A further Close returns nil once all have ended.
func (a *Allocator) Close() error {
	late := a.arenas.end()
	err := errors.Join(late, a.freeIdle(true), a.arenas.closeEmpty())
	if leaks := a.Leaks(); len(leaks) > 0 {
		err = errors.Join(err, &LeakError{Allocator: a.opt.Name, Leaks: leaks, traced: a.opt.Debug})
	}
	return err
}
