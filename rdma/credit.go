package rdma

import (
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/errs"
)

// recordSlots is how many slots each side keeps for records of the van. The last is for a record that brings nothing
// but credit, some of it for records: so two sides that both wait for credit can still wake each other.
const recordSlots = 4

// credit is what may be sent to the peer: as many slots as it has posted.
type credit struct {
	messages, records allowance
}

// allowance counts slots of one kind.
type allowance struct {
	size uint32        // slots that the peer has
	sent atomic.Uint32 // used so far; written under endpoint.mu
	back atomic.Uint32 // posted again so far, as the peer has told
}

// left is how many slots may be used.
func (a *allowance) left() int { return int(a.size - (a.sent.Load() - a.back.Load())) }

// take uses a slot, and returns its number, from 1.
func (a *allowance) take() uint32 { return a.sent.Add(1) }

// learn takes a count of the peer. Counts come on two ways, so an old one is not an error. One that is ahead of what
// was sent is one.
func (a *allowance) learn(count uint32) bool {
	for {
		back := a.back.Load()
		if int32(count-back) <= 0 {
			return true
		}
		if int32(count-a.sent.Load()) > 0 {
			return false
		}
		if a.back.CompareAndSwap(back, count) {
			return true
		}
	}
}

// learn takes both counts. The error costs the peer its connection.
func (c *credit) learn(messages, records uint32) error {
	if !c.messages.learn(messages) {
		return errs.Protocol("credit", 8, "%d messages are said to be consumed (want at most %d)", messages, c.messages.sent.Load())
	}
	if !c.records.learn(records) {
		return errs.Protocol("credit", 12, "%d records are said to be consumed (want at most %d)", records, c.records.sent.Load())
	}
	return nil
}

// learnWord takes the counts of the word that the peer writes.
func (c *credit) learnWord(w uint64) error { return c.learn(uint32(w), uint32(w>>32)) }
