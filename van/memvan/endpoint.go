package memvan

import (
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// endpoint is one side of a conn. It implements van.Endpoint; callers see it as public.
type endpoint struct {
	conn   *conn
	peer   *endpoint
	van    *memVan
	public van.Endpoint // the endpoint itself, or the granter or viewer around it
	side   int
	name   string // the other side, for people
	user   atomic.Pointer[any]

	// guarded by conn.mu
	in        inbox
	done      ring[completion]
	pending   int // operations accepted whose completion was not read
	slots     []*slot
	made      int  // slots that exist
	starved   bool // a frame waits for a credit
	accepting bool // EventAccepted is still to come
	closed    bool
	lost      bool  // EventLost was reported
	reason    error // of the loss
	granted   grants

	// the poller's alone
	places [][]byte // scratch
	turn   uint64   // the Poll that reported the acceptance

	// guarded by van.mu
	next   *endpoint
	queued bool
}

type completion struct {
	op  van.OpID
	err error
}

// Peer implements van.Endpoint.
func (e *endpoint) Peer() string { return e.name }

// SetUser implements van.Endpoint.
func (e *endpoint) SetUser(v any) { e.user.Store(&v) }

// User implements van.Endpoint.
func (e *endpoint) User() any {
	if p := e.user.Load(); p != nil {
		return *p
	}
	return nil
}

// Send implements van.Endpoint. Budget: no allocation, one lock, one copy of the head.
func (e *endpoint) Send(m *van.Message) error {
	size, err := e.van.check(m)
	if err != nil {
		return err
	}
	if len(m.Target) == 0 || size == 0 {
		return e.sendFrom(m, size)
	}
	if err := e.van.opt.Device.checkSources(m); err != nil {
		return err
	}
	if e.van.opt.Offload {
		return e.post(m, size)
	}
	return e.sendInto(m, size)
}

// sendFrom queues m; the receiver will read the payload out of the source memory, unless this side has written it.
func (e *endpoint) sendFrom(m *van.Message, size int64) error {
	e.conn.mu.Lock()
	defer e.conn.unlock()
	if err := e.canSend(); err != nil {
		return err
	}
	e.pending++
	e.transmit(m, size, m.Written > 0)
	return nil
}

// canSend reports whether one more operation can be accepted.
func (e *endpoint) canSend() error {
	switch {
	case e.closed:
		return stepvan.ErrClosed
	case e.conn.over:
		return stepvan.ErrPeerLost
	case e.pending == e.van.opt.Queue:
		return stepvan.ErrWouldBlock
	}
	return nil
}

// transmit puts m on its way.
func (e *endpoint) transmit(m *van.Message, size int64, written bool) {
	p := e.peer
	f := p.in.take()
	f.fill(m, size, written)
	p.in.push(f)
	p.ready()
}

// completeFrame completes the operation behind a frame on its way to e, once.
func (e *endpoint) completeFrame(f *frame, err error) {
	if !f.completed {
		f.completed = true
		e.peer.complete(f.op, err)
	}
}

// complete makes the completion of op readable at e.
func (e *endpoint) complete(op van.OpID, err error) {
	e.done.push(completion{op, err})
	e.ready()
}

// ready makes the next Poll look at e.
func (e *endpoint) ready() {
	if e.van.enqueue(e) {
		e.conn.wake[e.side] = true
	}
}

// Close implements van.Endpoint.
func (e *endpoint) Close() error {
	var f [2]ending
	f[e.side].close = true
	f[e.peer.side].reason = e.peer.fault("receive", stepvan.ErrPeerLost)
	e.conn.end(f)
	return nil
}
