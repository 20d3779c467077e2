package tensor

import (
	"fmt"

	"github.com/stepvan/stepvan"
)

// Window shows foreign memory through a region, one piece after the other: memory that comes and goes with a message.
// Each piece is a life of the region, so tensors of an earlier piece are stale. Show and Shut must be called in turn.
// It is for stepvan itself: package server shows a worker's memory with it, and [FromPointer] the one piece that a
// program gave.
type Window struct {
	region Region
	gone   func() // nil for memory of a program, which closes the region
	owner  any    // of memory of a program
}

// NewWindow makes a window that shows nothing. It calls gone after each Shut, when no operation holds the region any
// more: from then on nothing reads the memory, and Show may be called. The call comes from inside Shut, or from the
// last Release, on its goroutine.
func NewWindow(gone func()) *Window {
	w := &Window{gone: gone}
	w.region.id, w.region.class, w.region.window = lastID.Add(1), noClass, w
	return w
}

// Show begins to show mem, which must stay valid until the window calls gone. 0 allocations.
func (w *Window) Show(mem []byte) *Region {
	r := &w.region
	r.mem = mem
	r.n.Store(int64(len(mem)))
	r.state.Store(uint64(r.life().next()))
	return r
}

// Shut ends what Show began, as [Allocator.Put] does: operations that hold the region may finish. 0 allocations.
func (w *Window) Shut() { w.region.giveBack() }

var errWindow = fmt.Errorf("tensor: the region shows memory of others, and ends with what it came with: %w", stepvan.ErrNotSupported)
