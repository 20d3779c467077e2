package particle

import (
	"container/list"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// Policy says which particle leaves a [Cache] for another one.
type Policy uint8

// The policies.
const (
	// Direct gives each particle one place: its number in the order of Create, modulo the size.
	Direct Policy = iota
	// LRU evicts the particle whose last use is the longest ago.
	LRU
)

// Cache keeps the modules of some particles at a device. Those of all others wait elsewhere. M is what a program has
// for a module: parameters, gradients, and the state of its optimiser. One goroutine at a time uses a cache.
type Cache[M any] struct {
	policy  Policy
	size    int
	in, out func(id ID, m M) (M, error)
	order   map[ID]int     // of Create
	made    []ID           // by that order
	away    map[ID]M       // of particles that are not at the device
	places  []*resident[M] // Direct: by place; nil where nobody is
	recent  *list.List     // LRU: the latest first
	at      map[ID]*residence[M]
}

// resident is a particle at the device.
type resident[M any] struct {
	id     ID
	module M
	pins   int
}

// residence is where a resident is found.
type residence[M any] struct {
	*resident[M]
	element *list.Element // LRU
}

// NewCache makes a cache for so many modules. The function out takes a module off the device, with all of its state,
// and returns what is kept of it. The function in brings it back. A module whose move has failed stays where it was.
func NewCache[M any](policy Policy, size int, in, out func(id ID, m M) (M, error)) (*Cache[M], error) {
	if size < 1 || policy > LRU {
		return nil, errs.Invalid("cache: size and policy: there is no such cache (got %d and %d): give room for a module, and Direct or LRU", size, policy)
	}
	return &Cache[M]{
		policy: policy, size: size, in: in, out: out, order: map[ID]int{}, away: map[ID]M{},
		places: make([]*resident[M], size), recent: list.New(), at: map[ID]*residence[M]{},
	}, nil
}

// Create adds a particle, whose module is at the device. Errors: [stepvan.ErrInvalid] for one that is there already,
// and [stepvan.ErrBusy] where it would evict a pinned one.
func (c *Cache[M]) Create(id ID, m M) error {
	if _, known := c.order[id]; known {
		return errs.Invalid("cache: particle %d: it was created before: create it once", id)
	}
	if err := c.makeRoom(len(c.made)); err != nil {
		return err
	}
	c.order[id] = len(c.made)
	c.made = append(c.made, id)
	c.settle(id, m)
	return nil
}

// Read returns the module of a particle at the device, where it is brought if it is not there. Errors:
// [stepvan.ErrInvalid] for an unknown particle, [stepvan.ErrBusy] where that would evict a pinned one, and those of in
// and out.
func (c *Cache[M]) Read(id ID) (m M, err error) {
	order, known := c.order[id]
	if !known {
		return m, errs.Invalid("cache: particle %d: it is unknown: create it first", id)
	}
	if r := c.at[id]; r != nil {
		if r.element != nil {
			c.recent.MoveToFront(r.element)
		}
		return r.module, nil
	}
	if err := c.makeRoom(order); err != nil {
		return m, err
	}
	if m, err = c.in(id, c.away[id]); err != nil {
		return m, fmt.Errorf("cache: particle %d: %w", id, err)
	}
	delete(c.away, id)
	c.settle(id, m)
	return m, nil
}

// Pin keeps a particle at the device until as many calls of Unpin. It reports whether it is there.
func (c *Cache[M]) Pin(id ID) bool {
	r := c.at[id]
	if r != nil {
		r.pins++
	}
	return r != nil
}

// Unpin ends a Pin.
func (c *Cache[M]) Unpin(id ID) error {
	r := c.at[id]
	if r == nil || r.pins == 0 {
		return errs.Invalid("cache: particle %d: it is not pinned: unpin what was pinned", id)
	}
	r.pins--
	return nil
}

// Contains reports whether a particle was created here, and Resident whether it is at the device.
func (c *Cache[M]) Contains(id ID) bool {
	_, known := c.order[id]
	return known
}

// Resident reports whether a particle is at the device.
func (c *Cache[M]) Resident(id ID) bool { return c.at[id] != nil }

// Particles lists all particles in the order of Create. The caller must not write to the slice.
func (c *Cache[M]) Particles() []ID { return c.made }

// makeRoom evicts a particle for the one with a number in the order of Create.
func (c *Cache[M]) makeRoom(order int) error {
	if c.policy == Direct {
		return c.evict(c.places[order%c.size])
	}
	if len(c.at) < c.size {
		return nil
	}
	for e := c.recent.Back(); e != nil; e = e.Prev() {
		if r := c.at[e.Value.(ID)]; r.pins == 0 {
			return c.evict(r.resident)
		}
	}
	return fmt.Errorf("cache: all %d modules are pinned: unpin one, and try again: %w", c.size, stepvan.ErrBusy)
}

func (c *Cache[M]) evict(r *resident[M]) error {
	if r == nil {
		return nil
	}
	if r.pins > 0 {
		return fmt.Errorf("cache: particle %d has the place, and is pinned: unpin it, and try again: %w", r.id, stepvan.ErrBusy)
	}
	kept, err := c.out(r.id, r.module)
	if err != nil {
		return fmt.Errorf("cache: particle %d: %w", r.id, err)
	}
	c.away[r.id] = kept
	if at := c.at[r.id]; at.element != nil {
		c.recent.Remove(at.element)
	}
	delete(c.at, r.id)
	c.places[c.order[r.id]%c.size] = nil
	return nil
}

// settle notes that a particle is at the device.
func (c *Cache[M]) settle(id ID, m M) {
	r := &residence[M]{resident: &resident[M]{id: id, module: m}}
	c.at[id] = r
	if c.policy == LRU {
		r.element = c.recent.PushFront(id)
	} else {
		c.places[c.order[id]%c.size] = r.resident
	}
}
