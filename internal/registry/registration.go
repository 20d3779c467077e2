package registry

import (
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	drivers "github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/tensor"
)

// Registration holds the memory of a tensor until Close. Its owner closes it once.
type Registration struct {
	r      *Registry
	tensor tensor.Tensor
	entry  *entry // of memory outside the arenas; nil for other memory, and where no device reaches it
	arena  bool   // the tensor lies in an arena that the devices reach
}

// Register holds the memory of t and registers it, or the arena that it lies in. It blocks. Memory that a device cannot
// reach is held all the same, and goes another way.
func (r *Registry) Register(t tensor.Tensor) (*Registration, error) {
	err := drivers.Check(&t)
	if err == nil {
		err = t.Retain()
	}
	if err != nil {
		return nil, fmt.Errorf("the tensor cannot be used: %w", err)
	}
	g := &Registration{r: r, tensor: t}
	err = g.register()
	if err != nil && !errors.Is(err, stepvan.ErrNotSupported) {
		t.Release()
		return nil, err
	}
	return g, nil
}

func (g *Registration) register() (err error) {
	b := g.tensor.Addresses()
	if !g.r.Needed() || len(b) == 0 {
		return nil
	}
	if d := g.tensor.Device(); !d.IsHost() {
		e, err := g.r.registerAccelerator(d, b)
		if err == nil {
			g.entry = e
		}
		return err
	}
	if at, ok := g.r.arenaOf(b); ok {
		_, err = g.r.register(at.Memory, at.File, true) // until the arena goes back to the system
		g.arena = err == nil
		return err
	}
	e, err := g.r.register(b, tensor.NewFileNumber(), false)
	if err == nil {
		g.entry = e
	}
	return err
}

// Registered reports whether the devices reach the memory. It is false where no device needs that.
func (g *Registration) Registered() bool { return g.entry != nil || g.arena }

// ID is the number of the memory, as in the Place that [Registry.Find] returns. It is 0 where the registration has no
// memory of its own.
func (g *Registration) ID() uint64 {
	if g.entry == nil {
		return 0
	}
	return g.entry.id
}

// Close has the devices give the memory up, unless others have registered it, and then releases the tensor. It blocks.
func (g *Registration) Close() error {
	if g.entry == nil {
		g.tensor.Release()
		return nil
	}
	last, held := g.r.leave(g)
	if held {
		return nil // the messages give the memory up, and release the tensor
	}
	var err error
	if last {
		err = g.r.giveUp(g.entry)
	}
	g.tensor.Release()
	return err
}

// leave ends a registration. It reports whether that was the last one of its memory, so that the caller is to give that
// up. If messages hold the memory, it leaves that to them, with the tensor.
func (r *Registry) leave(g *Registration) (last, held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := g.entry
	e.uses--
	switch {
	case e.uses > 0:
		return false, false
	case e.vacated:
		return true, false
	case r.entries[extentOf(e.mem)] != e:
		return false, false
	}
	r.remove(e)
	if e.holds > 0 {
		e.last = g.tensor
		return true, true
	}
	return true, false
}

// Hold keeps memory registered while a message goes out of it piece by piece.
type Hold struct{ e *entry }

// Hold holds the registered memory that b lies in, until Release. It reports false where b is not registered. It does
// not block.
func (r *Registry) Hold(b []byte) (Hold, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.found.entry(b)
	if e == nil {
		return Hold{}, false
	}
	e.holds++
	return Hold{e}, true
}

// Release ends a hold. It does not block: another goroutine waits for the devices.
func (r *Registry) Release(h Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := h.e
	e.holds--
	if e.holds > 0 || e.last.Check() != nil {
		return
	}
	r.leaving.Go(func() {
		_ = r.giveUp(e)
		e.last.Release()
	})
}
