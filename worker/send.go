package worker

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/trace"
)

// Do sends a request and returns its handle. Nothing has been sent when it
// returns an error:
//
//   - stepvan.ErrInvalid: the request contradicts the contract;
//   - stepvan.ErrBusy: a push key, which the text names, still has an unanswered push; or a tensor shares memory with a
//     request that has failed and of which a server, which the text names, may still use it;
//   - stepvan.ErrWouldBlock: too many requests are outstanding, or the queue to a server is
//     full; wait for a handle and try again;
//   - a *stepvan.OpError naming a server that was lost (stepvan.ErrPeerLost);
//   - stepvan.ErrClosed: after Close, or of a tensor whose region is closed.
//
// Any goroutine; it never blocks. Budget: 0 allocations, one message per server.
func (w *Worker) Do(r *Exchange) (Handle, error) {
	start := trace.Now()
	if err := r.check(); err != nil {
		return Handle{}, err
	}
	routing := r.Routing
	if routing == Default {
		routing = w.opt.Routing
	}
	if err := r.checkNames(routing); err != nil {
		return Handle{}, err
	}
	w.mu.Lock()
	defer w.unlock()
	c, err := w.prepare(r, routing)
	if err != nil {
		return Handle{}, err
	}
	c.start = start
	return w.submit(c)
}

// prepare makes a call that can be sent. Under w.mu.
func (w *Worker) prepare(r *Exchange, routing Routing) (*call, error) {
	if w.closed {
		return nil, errClosed
	}
	if w.failed != nil {
		return nil, w.failed
	}
	if w.outstanding >= w.opt.Outstanding {
		return nil, stepvan.ErrWouldBlock
	}
	c := w.take()
	c.load(r)
	if err := w.admit(c, r, routing); err != nil {
		w.giveBack(c)
		return nil, err
	}
	w.sum(c)
	return c, nil
}

// admit does everything that can refuse a call before the link is asked.
func (w *Worker) admit(c *call, r *Exchange, routing Routing) error {
	if err := w.route(c, r, routing); err != nil {
		return err
	}
	for _, p := range c.parts {
		if err := w.checkPart(p); err != nil {
			return err
		}
		if p.server.lost != nil {
			return p.server.lost
		}
	}
	if err := w.checkApart(c); err != nil {
		return err
	}
	if len(w.remains) > 0 {
		if err := w.unhaunted(c); err != nil {
			return err
		}
	}
	if err := w.claim(c); err != nil {
		return err
	}
	if err := c.retain(); err != nil {
		return err
	}
	for _, p := range c.parts {
		w.aim(p)
	}
	return nil
}

// submit offers all parts to the link, which takes all or none. Under w.mu.
func (w *Worker) submit(c *call) (Handle, error) {
	op := wire.OpRouted
	if c.broadcast {
		op = wire.OpRequest
	}
	for _, p := range c.parts {
		p.encode(w, op)
	}
	w.open(c)
	h := Handle{w: w, id: c.rec.ID()}
	err := w.offer(c)
	w.land(c)
	if err != nil {
		c.pending = 0
		w.results.Drop(c.rec)
		err = refusal(c, err)
		w.giveBack(c)
		return Handle{}, err
	}
	w.submitted(c)
	return h, nil
}

// offer gives the parts to the link. Under w.mu, which is free meanwhile when that may take long.
func (w *Worker) offer(c *call) error {
	if len(c.parts) > 1 || c.parts[0].bytesOut > link.LockedBytes {
		w.mu.Unlock()
		defer w.mu.Lock()
	}
	return w.node.SendAll(c.sessions, c.outbounds)
}

// refusal says why the link took nothing, and names a server that is lost.
func refusal(c *call, err error) error {
	if errors.Is(err, stepvan.ErrWouldBlock) || errors.Is(err, stepvan.ErrInvalid) {
		return err
	}
	for _, p := range c.parts {
		if p.server.lost != nil {
			return p.server.lost
		}
		if lost := p.server.session.Err(); lost != nil {
			return p.server.failure(lost)
		}
	}
	return err
}

// open makes the call ready for what may come back before SendAll returns. Under w.mu.
func (w *Worker) open(c *call) {
	c.rec = w.results.Open()
	c.rec.Value.prepare(c)
	c.need, c.undone, c.unanswered = 2*len(c.parts), len(c.parts), len(c.parts)
	c.pending = c.need + 1
}

// submitted is what follows a successful SendAll. Servers that were lost meanwhile fail their parts.
func (w *Worker) submitted(c *call) {
	c.submitted = true
	if w.failed != nil {
		c.fail(w.failed)
	}
	for _, p := range c.parts {
		if p.server.lost != nil && !p.answered {
			w.drop(p)
		}
	}
	c.pending--
	w.settle(c)
}

// take returns a free call. Under w.mu.
func (w *Worker) take() *call {
	w.outstanding++
	c := w.calls
	if c == nil {
		return new(call)
	}
	w.calls, c.next = c.next, nil
	return c
}

// giveBack recycles a call and its parts. Under w.mu.
func (w *Worker) giveBack(c *call) {
	w.unclaim(c)
	c.release()
	for _, p := range c.parts {
		w.freePart(p)
	}
	c.push, c.pull = reuse.Slice(c.push), reuse.Slice(c.pull)
	c.parts, c.sessions, c.outbounds = c.parts[:0], c.sessions[:0], c.outbounds[:0]
	c.rec, c.last, c.err, c.label = nil, nil, nil, ""
	c.broadcast, c.submitted, c.finished = false, false, false
	c.need, c.undone, c.unanswered, c.lent, c.reading, c.placing, c.pending = 0, 0, 0, 0, 0, 0, 0
	c.next, w.calls = w.calls, c
	w.outstanding--
}

// Done implements link.Completer: the server has received the part, or it failed.
func (w *Worker) Done(o *link.Outbound, err error) {
	p := o.User.(*part)
	w.mu.Lock()
	defer w.unlock()
	c := p.call
	if err != nil {
		// The link fails messages with the session alone, and says so to its channels after that: who is told by this
		// one must find the server lost as well.
		w.lost(p.server.session, err)
		c.fail(p.server.failure(err))
	}
	p.done = true
	p.stamps[trace.RequestPostSend] = o.Posted()
	c.need--
	c.undone--
	c.pending--
	w.settle(c)
}
