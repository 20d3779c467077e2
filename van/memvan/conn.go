package memvan

import (
	"sync"

	"github.com/stepvan/stepvan"
)

// conn is a connection: two endpoints, and all state that both look at.
//
// Locks are taken in this order: Network.mu, conn.life, conn.mu, memVan.mu.
// Neither the Placer nor a wake function is called with any of them held.
type conn struct {
	life sync.RWMutex // held shared while payload is copied, exclusively to end the connection
	mu   sync.Mutex
	ends [2]endpoint

	// guarded by mu
	over bool    // ended: nothing more is accepted on either side
	wake [2]bool // whose van must be woken after unlocking
}

// unlock gives up mu and wakes the vans that have something to poll.
func (c *conn) unlock() {
	w := c.takeWakes()
	c.mu.Unlock()
	c.wakeVans(w)
}

func (c *conn) takeWakes() [2]bool {
	w := c.wake
	c.wake = [2]bool{}
	return w
}

func (c *conn) wakeVans(wakes [2]bool) {
	for i, w := range wakes {
		if w {
			c.ends[i].van.wake()
		}
	}
}

// ending is what the end of a connection means to one of its endpoints.
type ending struct {
	close  bool  // closed by its owner: drops what is under way to it, reports no loss
	drop   bool  // what is under way to it must not be delivered
	reason error // reported with EventLost
}

// end ends the connection. Further calls only add a close. It waits for copies
// under way, so the caller must hold no lock.
func (c *conn) end(endings [2]ending) {
	c.life.Lock()
	c.mu.Lock()
	first := !c.over
	c.over = true
	for i := range c.ends {
		if first || endings[i].drop {
			c.ends[i].reason = endings[i].reason
		}
		c.ends[i].closed = c.ends[i].closed || endings[i].close
	}
	for i := range c.ends {
		c.ends[i].settle(endings[i], first)
	}
	w := c.takeWakes()
	c.mu.Unlock()
	c.life.Unlock()
	c.wakeVans(w)
}

// settle decides what still reaches e after the end of the connection, and
// completes everything the peer has sent.
func (e *endpoint) settle(f ending, first bool) {
	keep := 0
	if !e.closed && !f.drop {
		keep = e.in.intact()
	}
	for i := range e.in.len() {
		var err error
		if i >= keep {
			err = e.peer.ended()
		}
		e.completeFrame(*e.in.at(i), err)
	}
	for e.in.len() > keep {
		e.in.recycle(e.in.dropBack())
	}
	if first {
		e.granted.revoke()
	}
	if e.closed {
		e.van.detach(e)
	}
	e.ready()
}

// ended is the error of operations on an endpoint whose connection is over.
func (e *endpoint) ended() error {
	if e.closed {
		return e.fault("send", stepvan.ErrClosed)
	}
	return e.fault("send", stepvan.ErrPeerLost)
}

func (e *endpoint) fault(op string, err error) error {
	return &stepvan.OpError{Op: op, Van: vanName, Peer: e.name, Err: err}
}
