package main

// #include "boundary.h"
import "C"

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/tensor"
)

// foreignMemory makes regions of memory of C programs, and collects the owners of memory that no layer uses any more.
// It reuses its objects: 0 allocations in the steady state.
type foreignMemory struct {
	mu       sync.Mutex
	windows  reuse.List[window]
	loans    reuse.List[loan]
	released []uint64 // owners to hand back, the oldest first
}

// window is the region of one piece of memory.
type window struct {
	*tensor.Window
	loan *loan          // nil: no owner
	over *tensor.Region // of stepvan_wrap, which the window shows a part of and holds; nil: memory without a number
	heap unsafe.Pointer // to be freed with the window; nil: memory of the program
}

// loan counts the uses of the memory that one owner keeps alive. Guarded by foreignMemory.mu.
type loan struct {
	owner uint64 // 0: it is not handed back
	uses  int
}

// begin makes a loan with one use: the caller's, until end. It returns nil without an owner.
func (l *foreignMemory) begin(owner uint64) *loan {
	if owner == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.loans.Take()
	o.owner, o.uses = owner, 1
	return o
}

// end ends the caller's use. If the operation happened, the owner is handed back after the last use.
func (l *foreignMemory) end(o *loan, happened bool) {
	if o == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !happened {
		o.owner = 0
	}
	l.unuse(o)
}

// use adds a use to those of the caller. end ends it, too.
func (l *foreignMemory) use(o *loan) {
	if o == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o.uses++
}

// endUnused is end for an operation that did not happen. If the memory is still used elsewhere, it reports false, and
// the owner is handed back as after any operation.
func (l *foreignMemory) endUnused(o *loan) bool {
	if o == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	unused := o.uses == 1
	if unused {
		o.owner = 0
	}
	l.unuse(o)
	return unused
}

// unuse ends one use. Under mu.
func (l *foreignMemory) unuse(o *loan) {
	if o.uses--; o.uses > 0 {
		return
	}
	if o.owner != 0 {
		l.released = append(l.released, o.owner)
		l.count()
	}
	l.loans.Put(o)
}

// count writes for C how many owners wait. Under mu.
func (l *foreignMemory) count() {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&C.boundary_released)), uint64(len(l.released)))
}

// expose makes a region of memory. It lasts until Shut of the window, and until the last holder releases it.
func (l *foreignMemory) expose(mem []byte, o *loan) (*window, *tensor.Region) {
	w := l.take(o)
	return w, w.Show(mem)
}

// exposeDevice is expose for memory of an accelerator.
func (l *foreignMemory) exposeDevice(d tensor.Device, address uintptr, n int64, o *loan) (*window, *tensor.Region) {
	w := l.take(o)
	return w, w.ShowDevice(d, address, n)
}

func (l *foreignMemory) take(o *loan) *window {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o != nil {
		o.uses++
	}
	w := l.windows.Take()
	if w.Window == nil {
		w.Window = tensor.NewWindow(func() { l.unused(w) })
	}
	w.loan = o
	return w
}

// unused is called when the last user of a window's memory has ended. It runs on any goroutine, which may hold locks of
// the layers below.
func (l *foreignMemory) unused(w *window) {
	if w.heap != nil {
		C.free(w.heap)
	}
	if over := l.retire(w); over != nil {
		over.Release()
	}
}

// retire takes a window back, and returns what it was over.
func (l *foreignMemory) retire(w *window) (over *tensor.Region) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o, over := w.loan, w.over
	w.loan, w.heap, w.over = nil, nil, nil
	l.windows.Put(w)
	if o != nil {
		l.unuse(o)
	}
	return over
}

// collect hands owners back.
func (l *foreignMemory) collect(owners []uint64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := copy(owners, l.released)
	l.released = l.released[:copy(l.released, l.released[n:])]
	l.count()
	return n
}

// copied makes a copy of b in memory that ends with the window; nil without memory.
func (l *foreignMemory) copied(b []byte) (*window, *tensor.Region) {
	p := C.boundary_alloc(C.size_t(len(b)))
	if p == nil {
		return nil, nil
	}
	mem := unsafe.Slice((*byte)(p), len(b))
	copy(mem, b)
	w := l.take(nil)
	w.heap = p
	return w, w.Show(mem)
}
