package tensor

import "errors"

// Get returns a region of n bytes from the pool, for a buffer that lives as long as a message. It differs from
// [Allocator.Alloc] in two ways. Get rounds the size up, by at most 25%, and [Allocator.Put] keeps the memory for the
// next Get. Budget in the steady state: one lock, no system call and 0 allocations.
func (a *Allocator) Get(n int) (*Region, error) {
	c, size := classOf(int64(n))
	if c == noClass {
		return a.Alloc(n)
	}
	r, open := a.classes[c].pop()
	if !open {
		return nil, a.arenas.errClosed()
	}
	if r == nil {
		var err error
		if r, err = a.newRegion(int64(n), size, c); err != nil {
			return nil, err
		}
	} else {
		a.idle.Add(-r.span.n)
		r.n.Store(int64(n))
		r.state.Store(uint64(r.life().next()))
	}
	a.trace(r)
	return r, nil
}

// Put ends a region that Get or Alloc of this allocator returned. The caller must not use the region any more.
// Operations that hold it may finish, and the last [Region.Release] gives the memory back. The next Get of that size
// raises the generation of the region, so that older tensors of it are stale. A second Put only raises [Stats].Misuses,
// unless another Get has returned the region meanwhile. Then the second Put ends the region of that other caller.
// Budget: 0 allocations.
func (a *Allocator) Put(r *Region) {
	if r != nil && (r.alloc != a || !r.giveBack()) {
		a.misuses.Add(1)
	}
}

// recycle keeps an ended region for the next Get, or frees it when it has no size class. It empties a full pool first:
// the pool then has sizes that the program no longer asks for, or more than it needs.
func (a *Allocator) recycle(r *Region) {
	if r.class == noClass || r.span.n > a.opt.IdleBytes {
		a.arenas.keep(a.free(r))
		return
	}
	if a.idle.Add(r.span.n) > a.opt.IdleBytes {
		a.arenas.keep(a.freeIdle(false))
	}
	if !a.classes[r.class].push(r) {
		a.idle.Add(-r.span.n)
		a.arenas.keep(a.free(r))
	}
}

// freeIdle frees the regions that the pool keeps, and ends the pool when closing.
func (a *Allocator) freeIdle(closing bool) error {
	var all error
	for i := range a.classes {
		for _, r := range a.classes[i].drain(closing) {
			a.idle.Add(-r.span.n)
			all = errors.Join(all, a.free(r))
		}
	}
	return all
}
