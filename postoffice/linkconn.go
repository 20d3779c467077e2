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
	pumping bool   // somebody is in pump's loop
	again   bool   // somebody else came by meanwhile
	closing bool   // close once the queue is empty
	ended   bool   // nothing is sent any more
	reason  string // of the close
}

func (c *linkConn) drop() {
	c.mu.Lock()
	c.closing, c.ended, c.queue = true, true, nil
	c.mu.Unlock()
	c.session.Drop(stepvan.ErrClosed)
}

func (c *linkConn) member() { c.session.SetVisitor(false) }

func (c *linkConn) identity() link.Identity { return c.session.Peer() }

func (c *linkConn) post(f frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing || c.ended:
	case len(c.queue) == maxQueued:
		c.queue, c.closing, c.reason = nil, true, "control messages are not read"
	default:
		c.queue = append(c.queue, f)
	}
}

func (c *linkConn) finish(reason string) {
	c.mu.Lock()
	if !c.closing && !c.ended {
		c.closing, c.reason = true, reason
	}
	c.mu.Unlock()
	c.pump()
}

// pump runs in one goroutine at a time; mu is not held while the link is called.
func (c *linkConn) pump() {
	c.mu.Lock()
	if c.pumping {
		c.again = true
		c.mu.Unlock()
		return
	}
	c.pumping = true
	var err error
	for err == nil && !c.ended && (len(c.queue) > 0 || c.closing) {
		err = c.step()
	}
	c.pumping = false
	c.mu.Unlock()
	if err != nil && !errors.Is(err, stepvan.ErrWouldBlock) {
		c.owner.lose(c, err)
	}
}

// step sends one frame, or closes when there is none. It is called and returns with mu held.
func (c *linkConn) step() error {
	if len(c.queue) == 0 {
		c.ended = true
		reason := c.reason
		c.mu.Unlock()
		_ = c.session.Close(reason) // the peer learns the reason or is gone already
		c.mu.Lock()
		return nil
	}
	f := c.queue[0]
	c.again = false
	c.mu.Unlock()
	err := c.session.Send(c.outbound(f))
	c.mu.Lock()
	switch {
	case err == nil:
		if len(c.queue) > 0 { // an overflow may have dropped it meanwhile
			c.queue = c.queue[1:]
		}
	case !errors.Is(err, stepvan.ErrWouldBlock):
		c.ended, c.queue = true, nil
	case c.again:
		return nil // room may have appeared since
	}
	return err
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
