package shmvan

import (
	"math/bits"
	"sync/atomic"

	"github.com/stepvan/stepvan/van"
)

// credits is the pool of an endpoint's deliveries: as many as may be unreleased.
type credits struct {
	free    atomic.Uint64 // bit i: slots[i] has been released
	at      uint64        // bit i: slots[i] is unused, and the poller knows. The poller's
	slots   []slot
	starved atomic.Bool // the poller found none free, and wants to be told
	e       *endpoint
}

// slot is one delivery with the memory of its header and meta. It is its delivery's Releaser.
type slot struct {
	delivery van.Delivery
	buf      []byte
	index    uint
	pool     *credits
}

// keepBytes is the capacity up to which a slot keeps its memory.
const maxKeptBytes = 64 << 10

func (c *credits) init(e *endpoint, n int) {
	c.e = e
	c.slots = make([]slot, n)
	for i := range c.slots {
		c.slots[i].index, c.slots[i].pool = uint(i), c
	}
	c.at = 1<<uint(n) - 1 // n == 64 gives all ones
}

// take returns an unused slot, or nil: then the next release has the poller look again. Poller only.
func (c *credits) take() *slot {
	if c.at == 0 && c.free.Load() == 0 {
		c.starved.Store(true)
		if c.free.Load() == 0 {
			return nil
		}
		c.starved.Store(false)
	}
	if c.at == 0 {
		c.at = c.free.Swap(0)
	}
	i := bits.TrailingZeros64(c.at)
	c.at &= c.at - 1
	return &c.slots[i]
}

// ReleaseDelivery implements van.Releaser. Any goroutine, also after Close.
func (s *slot) ReleaseDelivery(d *van.Delivery) {
	c := s.pool
	if cap(s.buf) > maxKeptBytes {
		s.buf = nil
	}
	d.Meta, d.Payload, d.Refused, d.Written = nil, nil, nil, false
	c.free.Or(1 << s.index)
	if c.starved.Load() && c.starved.CompareAndSwap(true, false) {
		c.e.v.wakePoller()
	}
}
