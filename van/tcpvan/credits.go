package tcpvan

import (
	"math/bits"
	"sync/atomic"

	"github.com/stepvan/stepvan/van"
)

// credits is the pool of an endpoint's deliveries: as many as may be unreleased.
type credits struct {
	free    atomic.Uint64 // bit i: slots[i] is unused
	slots   []slot
	stalled atomic.Bool // the receiver found none free, and wants to be told
	ep      *endpoint
}

// slot is one delivery with the memory of its meta. It is its delivery's Releaser.
type slot struct {
	delivery van.Delivery
	meta     []byte
	index    uint
	pool     *credits
}

// keepMeta is the capacity of meta up to which a slot keeps it for the next message.
const keepMeta = 64 << 10

func (c *credits) init(ep *endpoint, n int) {
	c.ep = ep
	c.slots = make([]slot, n)
	for i := range c.slots {
		c.slots[i].index, c.slots[i].pool = uint(i), c
	}
	c.free.Store(1<<uint(n) - 1) // n == 64 gives all ones
}

// take returns an unused slot, or nil: then the first release notes the endpoint. Poll only.
func (c *credits) take() *slot {
	free := c.free.Load()
	if free == 0 {
		c.stalled.Store(true)
		if free = c.free.Load(); free == 0 {
			return nil
		}
		c.stalled.Store(false)
	}
	i := bits.TrailingZeros64(free)
	c.free.And(^(uint64(1) << i))
	s := &c.slots[i]
	s.meta = s.meta[:0]
	return s
}

// ReleaseDelivery implements van.Releaser. Any goroutine, also after Close.
func (s *slot) ReleaseDelivery(d *van.Delivery) {
	c := s.pool
	if cap(s.meta) > keepMeta {
		s.meta = nil
	}
	d.Meta, d.Refused = nil, nil
	c.free.Or(1 << s.index)
	if c.stalled.Load() && c.stalled.CompareAndSwap(true, false) {
		c.ep.note()
	}
}
