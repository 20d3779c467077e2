package postoffice

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
)

// maxQueued bounds what waits for a peer that does not read.
const maxQueued = 4096

// linkConn is a conn over a link session. Frames that the session has no room
// for wait here, and go out when an earlier one is acknowledged or the service's
// timer pumps.
type linkConn struct {
	session *link.Session
	owner   *control
	pumps   atomic.Int64 // calls of pump since it last began; 0: no goroutine pumps

	mu     sync.Mutex
	queue  []frame // the first one may be on its way
	closed bool    // takes no frame any more
}

// goodbye is the frame that closes the session. It is never sent.
func goodbye(reason string) frame { return frame{op: opNone, body: []byte(reason)} }

func (c *linkConn) drop() {
	c.end()
	c.session.Drop(stepvan.ErrClosed)
}

// end empties the queue for good.
func (c *linkConn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed, c.queue = true, nil
}

func (c *linkConn) member() { c.session.SetVisitor(false) }

func (c *linkConn) identity() link.Identity { return c.session.Peer() }

func (c *linkConn) post(f frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
	case len(c.queue) == maxQueued:
		c.queue, c.closed = []frame{c.queue[0], goodbye("control messages are not read")}, true
	default:
		c.queue, c.closed = append(c.queue, f), f.op == opNone
	}
}

func (c *linkConn) finish(reason string) {
	c.post(goodbye(reason))
	c.pump()
}

// pump sends what is queued, and closes at the end. It runs in one goroutine at a time, which tries once more for every
// call that came meanwhile.
func (c *linkConn) pump() {
	if c.pumps.Add(1) > 1 {
		return
	}
	for calls := int64(1); ; calls = c.pumps.Load() {
		c.sendQueued()
		if c.pumps.CompareAndSwap(calls, 0) {
			return
		}
	}
}

// sendQueued sends as much as the session takes. It does not hold mu while it calls the link.
func (c *linkConn) sendQueued() {
	for f, ok := c.first(); ok; f, ok = c.next() {
		if f.op == opNone {
			c.end()
			_ = c.session.Close(string(f.body)) // the peer learns the reason, or is gone already
			return
		}
		err := c.session.Send(c.outbound(f))
		if errors.Is(err, stepvan.ErrWouldBlock) {
			return
		}
		if err != nil {
			c.end()
			c.owner.Lost(c.session, err)
			return
		}
	}
}

// first is the first frame of the queue, if it has any.
func (c *linkConn) first() (f frame, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return frame{}, false
	}
	return c.queue[0], true
}

// next removes the first frame, which was sent, and returns the one behind it.
func (c *linkConn) next() (f frame, ok bool) {
	c.mu.Lock()
	if len(c.queue) > 0 { // a drop may have emptied it meanwhile
		c.queue = c.queue[1:]
	}
	c.mu.Unlock()
	return c.first()
}

func (c *linkConn) outbound(f frame) *link.Outbound {
	o := &link.Outbound{Channel: link.ChannelControl, Op: uint8(f.op), Request: f.request, Completer: c}
	if len(f.body) > 0 {
		o.Payload = [][]byte{f.body}
	}
	return o
}

// Done implements link.Completer: there may be room again.
func (c *linkConn) Done(*link.Outbound, error) { c.pump() }
