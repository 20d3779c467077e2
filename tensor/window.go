package tensor

import (
	"fmt"

	"github.com/stepvan/stepvan"
)

// Window shows memory of others, one piece after the other, through a region: for memory
// that comes and goes with a message. Each piece is a life of the region, so tensors of
// an earlier one are stale. Whoever shows has Show and Shut called in turn.
type Window struct {
	region Region
	gone   func()
}

// NewWindow makes a window that shows nothing. gone is called after each Shut, when nobody holds the
// region any more: from then on the memory is not looked at, and Show may be called. It comes from
// inside Shut, or from the last Release, on its goroutine.
func NewWindow(gone func()) *Window {
	w := &Window{gone: gone}
	w.region.id, w.region.class, w.region.window = lastID.Add(1), noClass, w
	return w
}

// Show begins to show mem, which must stay valid until gone is called. 0 allocations.
func (w *Window) Show(mem []byte) *Region {
	r := &w.region
	r.mem = mem
	r.n.Store(int64(len(mem)))
	r.state.Store(uint64(r.life().next()))
	return r
}

// Shut ends what Show began, as Allocator.Put does: operations that hold the region may finish. 0 allocations.
func (w *Window) Shut() {
	r := &w.region
	for {
		l := r.life()
		if !l.open() || l.put() {
			return
		}
		to := l | putBit
		if l.holds() == 0 {
			to = l.ended()
		}
		if r.swap(l, to) {
			if l.holds() == 0 {
				w.gone()
			}
			return
		}
	}
}

var errWindow = fmt.Errorf("tensor: the region shows memory of others, and ends with what it came with: %w", stepvan.ErrNotSupported)
