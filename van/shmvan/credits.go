package shmvan

import (
	"math/bits"
	"sync/atomic"
)

// credits is the pool of an endpoint's deliveries: as many as may be unreleased.
type credits struct {
	released atomic.Uint64 // bit i: slots[i] was released since the poller last looked
	unused   uint64        // bit i: slots[i] is unused. The poller's
	slots    []slot
	starved  atomic.Bool // the poller found no unused slot, and the next release wakes it
	van      *shmVan
}

func (c *credits) init(v *shmVan, n int) {
	c.van = v
	c.slots = make([]slot, n)
	for i := range c.slots {
		c.slots[i].index, c.slots[i].pool = uint(i), c
	}
	c.unused = 1<<uint(n) - 1 // n == 64 gives all ones
}

// take returns an unused slot, or nil: then the next release has the poller look again. Poller only.
func (c *credits) take() *slot {
	if c.unused == 0 && c.released.Load() == 0 {
		c.starved.Store(true)
		if c.released.Load() == 0 {
			return nil
		}
		c.starved.Store(false)
	}
	if c.unused == 0 {
		c.unused = c.released.Swap(0)
	}
	i := bits.TrailingZeros64(c.unused)
	c.unused &= c.unused - 1
	return &c.slots[i]
}

// release makes a slot unused. Any goroutine.
func (c *credits) release(index uint) {
	c.released.Or(1 << index)
	if c.starved.Load() && c.starved.CompareAndSwap(true, false) {
		c.van.wakePoller()
	}
}
