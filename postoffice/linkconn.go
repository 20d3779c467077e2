package postoffice

import (
	"errors"
	"sync"

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

	mu      sync.Mutex
	queue   []frame
	state   connState
	pumping bool   // a goroutine is in pump's loop
	again   bool   // pump was called again since the last try to send
	reason  string // of the close
}

// connState is where a linkConn is in its life.
type connState uint8

const (
	connOpen    connState = iota
	connClosing           // closes once the queue is empty
	connEnded             // sends nothing any more
)

func (c *linkConn) drop() {
	c.mu.Lock()
	c.state, c.queue = connEnded, nil
	c.mu.Unlock()
	c.session.Drop(stepvan.ErrClosed)
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

// pump sends what is queued, and closes at the end. It runs in one goroutine at a time; mu is not held while the link
// is called.
func (c *linkConn) pump() {
	if !c.beginPump() {
		return
	}
	for {
		f, step := c.next()
		switch step {
		case pumpDone:
			return
		case pumpClose:
			_ = c.session.Close(c.reason) // the peer learns the reason, or is gone already
		case pumpSend:
			err := c.session.Send(c.outbound(f))
			if c.sent(err) {
				continue
			}
			if !errors.Is(err, stepvan.ErrWouldBlock) {
				c.owner.lose(c, err)
			}
			return
		}
	}
}

// beginPump reports whether the caller is to pump. Else it makes the goroutine that pumps try once more.
func (c *linkConn) beginPump() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.again = c.pumping
	first := !c.pumping
	c.pumping = true
	return first
}

// pumpStep is what pump does next.
type pumpStep uint8

const (
	pumpDone pumpStep = iota
	pumpSend
	pumpClose
)

// next returns the frame to send, or that pump is done.
func (c *linkConn) next() (frame, pumpStep) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state == connEnded, c.state == connOpen && len(c.queue) == 0:
		c.pumping = false
		return frame{}, pumpDone
	case len(c.queue) == 0:
		c.state = connEnded
		return frame{}, pumpClose
	}
	c.again = false
	return c.queue[0], pumpSend
}

// sent takes in the result of sending the first frame, and reports whether pump continues.
func (c *linkConn) sent(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		if len(c.queue) > 0 { // an overflow may have dropped it meanwhile
			c.queue = c.queue[1:]
		}
		return true
	case !errors.Is(err, stepvan.ErrWouldBlock):
		c.state, c.queue = connEnded, nil
	case c.again:
		return true // room may have appeared since
	}
	c.pumping = false
	return false
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
