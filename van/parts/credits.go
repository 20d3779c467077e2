package parts

import (
	"math/bits"
	"sync/atomic"

	"github.com/stepvan/stepvan/van"
)

// MaxCredits is the most that an endpoint can have.
const MaxCredits = 64

// fewSlots are the slots that come first. While they are enough, the others stay unused, and these stay in the cache.
const fewSlots = 1<<4 - 1

// MaxKeptBytes is the capacity up to which a slot keeps its memory for the next message.
const MaxKeptBytes = 64 << 10

// Credits are the deliveries of an endpoint: as many as may be unreleased.
type Credits struct {
	released atomic.Uint64 // bit i: slots[i] was released since the poller last looked
	unused   uint64        // bit i: slots[i] is unused. The poller's
	slots    []Slot
	starved  atomic.Bool // the poller found no unused slot, and the next release wakes it
	wake     func()
}

// Slot is one delivery with the memory of its meta. It is its delivery's Releaser.
type Slot struct {
	Delivery van.Delivery
	Bytes    []byte // empty in a slot that was just taken
	index    uint
	credits  *Credits
}

// NewCredits makes n credits, 1 to MaxCredits. wake has the poller look at the endpoint again. Any goroutine calls it.
func NewCredits(n int, wake func()) *Credits {
	c := &Credits{slots: make([]Slot, n), wake: wake}
	for i := range c.slots {
		c.slots[i].index, c.slots[i].credits = uint(i), c
	}
	c.unused = 1<<uint(n) - 1 // n == 64 gives all ones
	return c
}

// Take returns an unused slot, or nil: then the next release wakes the poller. Poller only.
// Budget: no allocation, no lock.
func (c *Credits) Take() *Slot {
	if c.unused&fewSlots == 0 {
		c.collect()
	}
	if c.unused == 0 {
		c.starved.Store(true)
		if c.collect(); c.unused == 0 {
			return nil
		}
		c.starved.Store(false)
	}
	i := bits.TrailingZeros64(c.unused)
	c.unused &= c.unused - 1
	s := &c.slots[i]
	s.Bytes = s.Bytes[:0]
	return s
}

// collect takes back what was released.
func (c *Credits) collect() {
	if c.released.Load() != 0 {
		c.unused |= c.released.Swap(0)
	}
}

// Starved reports whether the poller waits for a release. Any goroutine.
func (c *Credits) Starved() bool { return c.starved.Load() }

// ReleaseDelivery implements van.Releaser. Any goroutine, also after Close.
func (s *Slot) ReleaseDelivery(d *van.Delivery) {
	if cap(s.Bytes) > MaxKeptBytes {
		s.Bytes = nil
	}
	d.Meta, d.Payload, d.Refused, d.Written = nil, nil, nil, false
	c := s.credits
	c.released.Or(1 << s.index)
	if c.starved.Load() && c.starved.CompareAndSwap(true, false) {
		c.wake()
	}
}
