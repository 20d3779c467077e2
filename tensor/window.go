package tensor

import (
	"fmt"

	"github.com/stepvan/stepvan"
)

// Window is a region that shows pieces of foreign memory, one after the other. The memory of a message, for example,
// comes and goes. Each piece has a generation of its own, so tensors of an earlier piece are stale. The caller calls
// Show and Shut in turn. It is for stepvan itself.
type Window struct {
	region Region
	gone   func() // nil for memory of a program, which closes the region
	owner  any    // of memory of a program
}

// NewWindow makes a window that shows nothing. After each Shut the window calls gone, as soon as no operation holds the
// region. From then on nothing reads the memory, and the caller may call Show again. Shut or the last [Region.Release]
// calls gone, on its goroutine.
func NewWindow(gone func()) *Window {
	w := &Window{gone: gone}
	w.region.id, w.region.class, w.region.window = lastID.Add(1), noClass, w
	return w
}

// Show begins to show mem, and returns the region. mem must stay valid until the window calls gone. Budget: 0
// allocations.
func (w *Window) Show(mem []byte) *Region {
	r := &w.region
	r.mem, r.device, r.start = mem, Device{}, 0
	r.n.Store(int64(len(mem)))
	r.state.Store(uint64(r.life().next()))
	return r
}

// ShowDevice is Show for n bytes at an address of an accelerator.
func (w *Window) ShowDevice(d Device, address uintptr, n int64) *Region {
	r := &w.region
	r.mem, r.device, r.start = nil, d, address
	r.n.Store(n)
	r.state.Store(uint64(r.life().next()))
	return r
}

// Shut ends what Show began. As with [Allocator.Put], operations that hold the region may finish. Budget: 0
// allocations.
func (w *Window) Shut() { w.region.giveBack() }

var errWindow = fmt.Errorf("tensor: the region shows memory of others, and ends with what it came with: %w", stepvan.ErrNotSupported)
