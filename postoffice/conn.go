package postoffice

import "github.com/stepvan/stepvan/internal/link"

// conn is the control channel to one peer: a linkConn, or a pipe in tests.
type conn interface {
	// post queues a frame; frames of one conn arrive in the order of their
	// posts. Nothing is sent before pump. Any goroutine; it never blocks.
	post(f frame)
	// pump sends what is queued and fits. No lock of this package may be held:
	// the loss of the peer may be reported from inside.
	pump()
	// finish closes the session with a goodbye once everything queued is sent.
	finish(reason string)
	// drop ends the session at once, whatever is queued.
	drop()
	// member says that the peer has registered: until then a peer of the scheduler is a visitor. From within deliver
	// only.
	member()
	// identity is how the peer introduced itself.
	identity() link.Identity
}

// service takes what comes over a control channel, for a Scheduler or an Office. Calls for one conn come one at a time;
// lost is the last one, and comes once.
type service interface {
	opened(c conn)
	deliver(c conn, f frame)
	lost(c conn, err error)
}
