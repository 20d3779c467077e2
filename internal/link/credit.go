package link

// sendCredit is how much unreleased payload the peer allows, and how much of that is in use. Session.mu guards it.
type sendCredit struct {
	window    uint64 // payload bytes that may be unreleased
	used      uint64 // what accepted messages on credited channels took of the window, ever
	freed     uint64 // of these, released by the peer
	requested bool   // the peer has been asked to report credit at once
	overdue   bool   // it was asked before the last turn of the reminder
}

// covers reports whether o has begun already, or fits the credit.
func (c *sendCredit) covers(o *Outbound) bool {
	if o.sent > 0 || o.total == 0 || !credited(o.Channel) {
		return true
	}
	return c.used-c.freed+charge(o.total, c.window) <= c.window
}

// charge is what a message of n bytes takes of a window: n, but never more than half the window. A message of any size
// can therefore be sent, and leaves room for others.
func charge(n, window uint64) uint64 { return min(n, window/2) }
