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
	queue  []frame // empty once the state is connEnded
	state  connState
	reason string // of the close
}

// connState is where a linkConn is in its life.
type connState uint8

const (
	connOpen    connState = iota
	connClosing           // closes once the queue is empty
	connEnded             // sends nothing any more
)

func (c *linkConn) drop() {
	c.end()
	c.session.Drop(stepvan.ErrClosed)
}

// end empties the queue for good.
func (c *linkConn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state, c.queue = connEnded, nil
}

func (c *linkConn) member() { c.session.SetVisitor(false) }

func (c *linkConn) identity() link.Identity { return c.session.Peer() }

func (c *linkConn) post(f frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state != connOpen:
	case len(c.queue) == maxQueued:
		c.queue, c.state, c.reason = nil, connClosing, "control messages are not read"
	default:
		c.queue = append(c.queue, f)
	}
}

func (c *linkConn) finish(reason string) {
	c.mu.Lock()
	if c.state == connOpen {
		c.state, c.reason = connClosing, reason
	}
	c.mu.Unlock()
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
	for {
		f, step := c.next()
		switch step {
		case pumpDone:
			return
		case pumpClose:
			_ = c.session.Close(c.reason) // the peer learns the reason, or is gone already
			return
		}
		switch err := c.session.Send(c.outbound(f)); {
		case err == nil:
			c.sent()
		case errors.Is(err, stepvan.ErrWouldBlock):
			return
		default:
			c.end()
			c.owner.Lost(c.session, err)
			return
		}
	}
}

// pumpStep is what pump does next.
type pumpStep uint8

const (
	pumpDone pumpStep = iota
	pumpSend
	pumpClose
)

// next returns what pump does next, and the frame to send.
func (c *linkConn) next() (frame, pumpStep) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.queue) > 0:
		return c.queue[0], pumpSend
	case c.state == connClosing:
		c.state = connEnded
		return frame{}, pumpClose
	}
	return frame{}, pumpDone
}

// sent removes the first frame.
func (c *linkConn) sent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) > 0 { // an overflow may have dropped it meanwhile
		c.queue = c.queue[1:]
	}
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
