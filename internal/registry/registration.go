package registry

import (
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// Registration holds the memory of a tensor until Close. Its owner closes it once.
type Registration struct {
	r      *Registry
	tensor tensor.Tensor
	entry  *entry // of memory outside the arenas; nil for other memory, and where no device reaches it
}

// Register holds the memory of t and registers it, or the arena that it lies in. It blocks. Memory that a device cannot
// reach is held all the same, and goes another way.
func (r *Registry) Register(t tensor.Tensor) (*Registration, error) {
	err := t.CheckHost()
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
	b := g.tensor.Bytes()
	if !g.r.Needed() || len(b) == 0 {
		return nil
	}
	if at, ok := g.r.arenaOf(b); ok {
		_, err = g.r.register(at.Memory, at.File, true) // until the arena goes back to the system
		return err
	}
	e, err := g.r.register(b, tensor.NewFileNumber(), false)
	if err == nil {
		g.entry = e
	}
	return err
}

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
	var err error
	if e := g.entry; e != nil && g.r.leave(e) {
		err = g.r.giveUp(e)
	}
	g.tensor.Release()
	return err
}

// leave ends one use of e. It reports whether that was the last one, and e is to be given up.
func (r *Registry) leave(e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.uses--
	if e.uses > 0 || r.entries[extentOf(e.mem)] != e {
		return false
	}
	r.remove(e)
	return true
}
