package worker

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// PushPull pushes and pulls with the routing of the worker. See [Worker.Do].
func (w *Worker) PushPull(push []tensor.Tensor, pushKeys []tensor.Key, pull []tensor.Tensor, pullKeys []tensor.Key) (Handle, error) {
	return w.Do(&Exchange{Push: push, PushKeys: pushKeys, Pull: pull, PullKeys: pullKeys})
}

// Do sends an exchange and returns its handle. When it returns an error, it has sent nothing:
//
//   - [stepvan.ErrInvalid]: the exchange contradicts the contract.
//   - [stepvan.ErrBusy]: the text names a push key whose last push has not been answered. Or it names a tensor that
//     shares memory with a failed exchange, and the server that may still use that memory.
//   - [stepvan.ErrWouldBlock]: too many exchanges are outstanding, or the queue to a server is
//     full. Wait for a handle and try again.
//   - A [*stepvan.OpError] names a server that was lost ([stepvan.ErrPeerLost]).
//   - [stepvan.ErrClosed]: after [Worker.Close], or of a tensor whose region is closed.
//
// Any goroutine may call Do. It never blocks. Budget: 0 allocations, one message per server.
func (w *Worker) Do(e *Exchange) (Handle, error) {
	start := trace.Now()
	if err := e.check(); err != nil {
		return Handle{}, err
	}
	routing := e.Routing
	if routing == Default {
		routing = w.opt.Routing
	}
	if err := e.checkNames(routing); err != nil {
		return Handle{}, err
	}
	h, unsent, err := w.start(e, routing, start)
	if unsent != nil {
		err = w.sendUnlocked(unsent)
	}
	w.fences.send()
	if err != nil {
		return Handle{}, err
	}
	return h, nil
}

// start begins an exchange, and sends it unless that may take long. Then it returns the exchange, for sendUnlocked.
func (w *Worker) start(e *Exchange, routing Routing, now int64) (Handle, *activeExchange, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x, err := w.prepare(e, routing)
	if err != nil {
		return Handle{}, nil, err
	}
	x.start = now
	h := Handle{w: w, id: x.record.ID()}
	if len(x.requests) > 1 || x.requests[0].bytesOut > link.LockedBytes {
		return h, x, nil
	}
	return h, nil, w.afterSend(x, w.link.SendAll(x.sessions, x.messages))
}

// sendUnlocked sends x while others may use the worker.
func (w *Worker) sendUnlocked(x *activeExchange) error {
	err := w.link.SendAll(x.sessions, x.messages)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.afterSend(x, err)
}

// prepare makes an exchange whose messages are complete. Under Worker.mu.
func (w *Worker) prepare(e *Exchange, routing Routing) (*activeExchange, error) {
	if w.closed {
		return nil, errClosed
	}
	if w.failed != nil {
		return nil, w.failed
	}
	if w.exchanges.outstanding >= w.opt.Outstanding {
		return nil, stepvan.ErrWouldBlock
	}
	x := w.exchanges.newExchange()
	x.load(e)
	x.label = e.Label
	if err := w.admit(x, e, routing); err != nil {
		w.recycle(x)
		return nil, err
	}
	if w.opt.CheckBorrowed {
		x.computeChecksums()
	}
	op := wire.OpRouted
	if x.broadcast {
		op = wire.OpRequest
	}
	x.record = w.results.Open()
	x.record.Value.prepare(x)
	for _, r := range x.requests {
		r.planSend(&w.lender)
		r.encode(op)
		r.on(offer)
	}
	x.state = x.state.after(offerAll)
	return x, nil
}

// admit does everything that can refuse an exchange before the link is asked. Under Worker.mu.
func (w *Worker) admit(x *activeExchange, e *Exchange, routing Routing) error {
	if err := w.route(x, e, routing); err != nil {
		return err
	}
	for _, r := range x.requests {
		if err := r.check(&w.limits); err != nil {
			return err
		}
		if r.server.lost != nil {
			return r.server.lost
		}
	}
	if err := w.overlap.check(x); err != nil {
		return err
	}
	if err := w.orphans.check(x); err != nil {
		return err
	}
	if err := w.keys.claim(x); err != nil {
		return err
	}
	return x.retain()
}

// afterSend ends the sending of x, which the link has taken as a whole or refused with err. Under Worker.mu.
func (w *Worker) afterSend(x *activeExchange, err error) error {
	for _, r := range x.requests {
		r.endWrites(&w.fences)
	}
	if err != nil {
		w.results.Drop(x.record)
		err = x.refusal(err)
		w.recycle(x)
		return err
	}
	x.state = x.state.after(accept)
	if w.failed != nil {
		x.fail(w.failed)
	}
	for _, r := range x.requests {
		if lost := r.server.lost; lost != nil && r.on(loseServer) {
			x.fail(lost)
		}
	}
	w.advance(x)
	return nil
}

// refusal says why the link took nothing, and names a server that is lost.
func (x *activeExchange) refusal(err error) error {
	if errors.Is(err, stepvan.ErrWouldBlock) || errors.Is(err, stepvan.ErrInvalid) {
		return err
	}
	for _, r := range x.requests {
		if r.server.lost != nil {
			return r.server.lost
		}
		if lost := r.server.session.Err(); lost != nil {
			return r.server.failure(lost)
		}
	}
	return err
}

// completer is told the end of each request's message.
type completer Worker

// Done implements link.Completer. The server has received the request, or the link has given it up.
func (c *completer) Done(m *link.Outbound, err error) {
	c.endSend(m.User.(*request), m.Posted(), err)
	c.fences.send()
}

func (c *completer) endSend(r *request, posted int64, err error) {
	w := (*Worker)(c)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		// The link fails messages only with their session, and tells its channels of the loss after that. A caller that
		// sees this failure must find the server lost as well.
		w.loseLocked(r.server.session, err)
		r.exchange.fail(r.server.failure(err))
	}
	r.stamps[trace.RequestPostSend] = posted
	r.on(endSend)
	w.advance(r.exchange)
}
