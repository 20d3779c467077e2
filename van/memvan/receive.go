package memvan

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van"
)

// report finds the next thing to say about e and writes it into ev. Called by
// the poller with conn.mu held; it may give the lock up in between.
func (e *endpoint) report(ev *van.Event) bool {
	for {
		switch {
		case e.done.len() > 0:
			c := e.done.pop()
			e.pending--
			*ev = van.Event{Kind: van.EventCompletion, Endpoint: e.public, Op: c.op, Err: c.err}
			return true
		case e.closed:
			return e.reportDetached(ev)
		case e.accepting:
			e.accepting = false
			*ev = van.Event{Kind: van.EventAccepted, Endpoint: e.public}
			return true
		case e.in.len() > 0 && (*e.in.at(0)).isPosted():
			return false // it came after runDevice, and has made the van ready again
		case e.in.len() > 0:
			s, again := e.receive()
			if s != nil {
				*ev = van.Event{Kind: van.EventMessage, Endpoint: e.public, Delivery: &s.delivery}
				return true
			}
			if !again {
				return false
			}
		case e.conn.over && !e.lost:
			e.lost = true
			e.van.detach(e)
			*ev = van.Event{Kind: van.EventLost, Endpoint: e.public, Err: e.reason}
			return true
		default:
			return e.lost && e.reportDetached(ev)
		}
	}
}

// reportDetached tells the end of a one-sided endpoint when the peer holds nothing of it any more.
func (e *endpoint) reportDetached(ev *van.Event) bool {
	if e.granted.detached || !e.van.opt.OneSided || e.granted.viewed > 0 {
		return false
	}
	e.granted.detached = true
	*ev = van.Event{Kind: van.EventDetached, Endpoint: e.public}
	return true
}

// receive takes the message at the front of the queue. Without one, again says
// whether something else changed meanwhile. Called and left with conn.mu held;
// the lock is free while the message is decoded, placed and copied.
func (e *endpoint) receive() (s *slot, again bool) {
	f := *e.in.at(0)
	if s = e.takeSlot(); s == nil {
		return nil, false
	}
	s.buf, f.head = f.head, s.buf
	s.along, f.along = f.along, s.along
	number, size, placed := f.number, f.size, !f.intact()
	e.conn.unlock()

	dst, err := e.prepare(s, size, placed)
	if err != nil {
		e.loseForViolation(err)
		e.conn.mu.Lock()
		e.freeSlot(s)
		return nil, true
	}
	if !e.collect(f, number, dst) {
		e.freeSlot(s)
		return nil, true
	}
	return s, false
}

// prepare checks the message in s and asks for the destination of its payload.
// An error costs the peer its connection.
func (e *endpoint) prepare(s *slot, size int64, placed bool) (dst [][]byte, err error) {
	if err := s.open(e.van.opt.Limits, size); err != nil {
		return nil, err
	}
	d := &s.delivery
	if d.Written = size > 0 && !placed; size == 0 || d.Written {
		if len(s.along) > 0 {
			d.Payload = s.along
		}
		return nil, nil
	}
	dst, err = e.van.opt.Placer.Place(e.public, &d.Header, d.Meta, e.places[:0])
	e.places = dst[:0]
	if err == nil {
		if n := total(dst); n != size {
			err = errs.Invalid("placer gave %d bytes for a payload of %d", n, size)
		}
	}
	if err == nil {
		return dst, nil
	}
	if pe := (*stepvan.ProtocolError)(nil); errors.As(err, &pe) {
		return nil, err
	}
	d.Refused = err
	return nil, nil
}

// collect copies the payload of f to dst (unless dst is nil) and takes f off
// the queue. It reports false when f was withdrawn meanwhile, and returns with conn.mu held.
func (e *endpoint) collect(f *frame, number uint64, dst [][]byte) bool {
	c := e.conn
	c.life.RLock()
	defer c.life.RUnlock()
	c.mu.Lock()
	if f.number != number {
		return false
	}
	if dst != nil {
		// Nobody can end the connection, nor anybody but this caller take f, so
		// the source stays valid without the lock.
		c.mu.Unlock()
		scatter(dst, f.source)
		clear(dst)
		c.mu.Lock()
	}
	e.in.pop()
	e.completeFrame(f, nil)
	e.in.recycle(f)
	return true
}

// loseForViolation ends the connection because of what the peer sent.
func (e *endpoint) loseForViolation(err error) {
	var f [2]ending
	f[e.side] = ending{drop: true, reason: e.fault("receive", err)}
	f[e.peer.side] = ending{reason: e.peer.fault("receive", stepvan.ErrPeerLost)}
	e.conn.end(f)
}
