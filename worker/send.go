package worker

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// PushPull pushes and pulls with the routing of the worker. See [Worker.Do].
func (w *Worker) PushPull(push []tensor.Tensor, pushKeys []tensor.Key, pull []tensor.Tensor, pullKeys []tensor.Key) (Handle, error) {
	return w.Do(&Exchange{Push: push, PushKeys: pushKeys, Pull: pull, PullKeys: pullKeys})
}

// Do sends an exchange and returns its handle. After an error it has sent nothing: the documentation of
// ps.Node.PushPull lists the errors. Any goroutine may call Do. It never blocks, except to
// register an arena that the program names for the first time (van.Registrar). Budget: 0 allocations, one message
// per server.
func (w *Worker) Do(e *Exchange) (Handle, error) {
	start := trace.Now()
	at, err := e.check()
	if err != nil {
		return Handle{}, err
	}
	routing := e.Routing
	if routing == stepvan.DefaultRouting {
		routing = w.opt.Routing
	}
	if err := e.checkRouting(routing); err != nil {
		return Handle{}, err
	}
	if r := w.link.Registry; r.Needed() {
		e.prepareMemory(r)
	}
	var s *staged
	if !at.IsHost() {
		if s, err = newStaged(e, at); err != nil {
			return Handle{}, err
		}
	}
	h, unsent, err := w.begin(e, routing, s, start)
	if unsent != nil {
		err = w.sendUnlocked(unsent)
	}
	w.fences.send()
	if err != nil {
		s.drop()
		return Handle{}, err
	}
	return h, nil
}

// prepareMemory registers the arenas of tensors that the program names for the first time. It may block.
func (e *Exchange) prepareMemory(r *registry.Registry) {
	for i := range e.Push {
		r.Prepare(&e.Push[i])
	}
	for i := range e.Pull {
		r.Prepare(&e.Pull[i])
	}
}

// begin prepares an exchange. When that is one small request, it sends the request with the lock held. Otherwise unsent
// is the exchange, for sendUnlocked to send. An exchange that must wait for an accelerator departs later, and so do all
// that come behind it.
func (w *Worker) begin(e *Exchange, routing stepvan.Routing, s *staged, now int64) (h Handle, unsent *activeExchange, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x, err := w.open(e, routing)
	if err != nil {
		return Handle{}, nil, err
	}
	x.start = now
	h = Handle{w: w, id: x.record.ID()}
	if s != nil || len(w.staging.departures.list) > 0 {
		w.staging.departures.start(x, s)
		return h, nil, nil
	}
	x.plan(&w.lender, w.opt.CheckBorrowed)
	if len(x.requests) > 1 || x.requests[0].bytesOut > link.LockedBytes {
		return h, x, nil
	}
	return h, nil, w.endOffer(x, w.link.SendAll(x.sessions, x.messages))
}

// sendUnlocked sends x while others may use the worker.
func (w *Worker) sendUnlocked(x *activeExchange) error {
	err := x.copySaved()
	if err == nil {
		err = w.link.SendAll(x.sessions, x.messages)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.endOffer(x, err)
}

// open makes an exchange that can be sent, and opens its handle. Under Worker.mu.
func (w *Worker) open(e *Exchange, routing stepvan.Routing) (*activeExchange, error) {
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
	x.record = w.results.Open()
	x.record.Value.prepare(x)
	return x, nil
}

// plan completes the messages of x, which the link gets next. Under Worker.mu.
func (x *activeExchange) plan(l *lender, check bool) {
	if check {
		x.computeChecksums()
	}
	op := wire.OpRouted
	if x.broadcast {
		op = wire.OpRequest
	}
	for _, r := range x.requests {
		r.planSend(l)
		r.encode(op)
		r.on(offer)
	}
	x.state = x.state.after(offerAll)
}

// admit does everything that can refuse an exchange before the link is asked. Under Worker.mu.
func (w *Worker) admit(x *activeExchange, e *Exchange, routing stepvan.Routing) error {
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

// encode makes the message. op says how the exchange was routed.
func (r *request) encode(op uint8) {
	x := r.exchange
	meta := r.meta[:0]
	for j, i := range r.pushes {
		d := describe(&x.push[i], x.pushKeys[i])
		r.bytesOut += d.Bytes
		if !r.plan.describePush(j, &d) {
			r.payload = append(r.payload, x.push[i].Addresses())
		}
		meta = d.AppendShaped(meta, x.push[i].Dims())
	}
	for j, i := range r.pulls {
		d := describe(&x.pull[i], x.pullKeys[i])
		if len(r.plan.pulls) > 0 {
			setTarget(&d, &r.plan.pulls[j])
		}
		if len(x.variable) > 0 && x.variable[i] {
			d.Flags |= wire.DescVariable
		}
		meta = d.AppendShaped(meta, x.pull[i].Dims())
	}
	r.meta = meta
	m := &r.message
	m.Op, m.Flags, m.Request, m.Generation = op, wire.FlagTrace, uint64(r.id), r.server.generation
	m.Pushes, m.Pulls = uint32(len(r.pushes)), uint32(len(r.pulls))
	m.Meta, m.Payload, m.Targets, m.Direct = meta, r.payload, r.plan.targets, r.isDirect()
}

// describe says what t is; AppendShaped adds its shape.
func describe(t *tensor.Tensor, k tensor.Key) (d wire.Descriptor) {
	d.Key, d.Bytes, d.DType = k, uint64(t.Len()), t.DType()
	return d
}

// endOffer ends the offer of x, which the link has taken as a whole or refused with err. Under Worker.mu.
func (w *Worker) endOffer(x *activeExchange, err error) error {
	w.exchanges.tidy()
	w.results.Recycle()
	for _, r := range x.requests {
		r.endWrites(&w.fences)
	}
	if err != nil {
		w.results.Drop(x.record)
		err = x.refusal(err)
		w.recycle(x)
		return err
	}
	x.accepted(w.failed)
	w.advance(x)
	return nil
}

// accepted notes that the link has taken x, and what has failed and has been lost meanwhile. Under Worker.mu; advance
// follows.
func (x *activeExchange) accepted(failed error) {
	x.state = x.state.after(accept)
	if failed != nil {
		x.fail(failed)
	}
	for _, r := range x.requests {
		if lost := r.server.lost; lost != nil && r.on(loseServer) {
			x.fail(lost)
		}
	}
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

// completer hears when a server has acknowledged a request, or when its session has ended.
type completer Worker

// Done implements link.Completer. The server has acknowledged the request, or the link has given it up.
func (c *completer) Done(m *link.Outbound, err error) {
	w, r := (*Worker)(c), m.User.(*request)
	w.mu.Lock()
	if err != nil {
		// The link fails messages only with their session, and tells its channels of the loss after that. A caller that
		// sees this failure must find the server lost as well.
		w.loseLocked(r.server.session, err)
		r.exchange.fail(r.server.failure(err))
	}
	r.stamps[trace.RequestPostSend] = m.Posted()
	r.on(acknowledge)
	w.advance(r.exchange)
	w.mu.Unlock()
	w.fences.send()
}
