package main

// #include "boundary.h"
import "C"

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/stepvan/stepvan/tensor"
)

// lender shows memory of C programs to the layers below, and tells when they are done with it. What
// is given back is used again: 0 allocations in the steady state.
type lender struct {
	mu       sync.Mutex
	windows  []*window // that show nothing
	loans    []*loan   // that are nobody's
	released []uint64  // owners to be handed back, the oldest first
}

// window shows one piece of memory.
type window struct {
	*tensor.Window
	loan *loan          // nil: nobody asks
	heap unsafe.Pointer // to be freed with it; nil: the program's
}

// loan counts the uses of what one owner keeps alive. Guarded by lender.mu.
type loan struct {
	owner uint64 // 0: nobody is told
	uses  int
}

// begin makes a loan with one use, that of the caller until end. nil when there is no owner.
func (l *lender) begin(owner uint64) *loan {
	if owner == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var o *loan
	if n := len(l.loans); n > 0 {
		o, l.loans = l.loans[n-1], l.loans[:n-1]
	} else {
		o = new(loan)
	}
	o.owner, o.uses = owner, 1
	return o
}

// end gives the caller's use up. The owner is told when all others have ended, too, unless the operation
// did not come about.
func (l *lender) end(o *loan, happened bool) {
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

// use adds a use, for who has one: it ends with end, too.
func (l *lender) use(o *loan) {
	if o == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o.uses++
}

// giveBack is end for an operation that did not come about, unless somebody else still uses the memory: then it reports
// false, and the owner is told as after any operation.
func (l *lender) giveBack(o *loan) bool {
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
func (l *lender) unuse(o *loan) {
	if o.uses--; o.uses > 0 {
		return
	}
	if o.owner != 0 {
		l.released = append(l.released, o.owner)
		l.count()
	}
	l.loans = append(l.loans, o)
}

// count tells C how many owners wait. Under mu.
func (l *lender) count() {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&C.boundary_released)), uint64(len(l.released)))
}

// show makes memory a region, until Shut of the window and the end of what holds the region then.
func (l *lender) show(mem []byte, o *loan) (*window, *tensor.Region) {
	w := l.take(o)
	return w, w.Show(mem)
}

func (l *lender) take(o *loan) *window {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o != nil {
		o.uses++
	}
	if n := len(l.windows); n > 0 {
		w := l.windows[n-1]
		l.windows = l.windows[:n-1]
		w.loan = o
		return w
	}
	w := &window{loan: o}
	w.Window = tensor.NewWindow(func() { l.gone(w) })
	return w
}

// gone is called when nobody uses the memory of a window any more, on any goroutine, which may hold locks of
// the layers below.
func (l *lender) gone(w *window) {
	if w.heap != nil {
		C.free(w.heap)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o := w.loan
	w.loan, w.heap = nil, nil
	l.windows = append(l.windows, w)
	if o != nil {
		l.unuse(o)
	}
}

// collect hands owners back.
func (l *lender) collect(owners []uint64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := copy(owners, l.released)
	l.released = l.released[:copy(l.released, l.released[n:])]
	l.count()
	return n
}

// copied makes a copy of b in memory that ends with the window; nil when there is none.
func (l *lender) copied(b []byte) (*window, *tensor.Region) {
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
