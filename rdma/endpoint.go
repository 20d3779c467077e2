package rdma

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/parts"
)

// endpoint is one side of a connection.
type endpoint struct {
	v        *rdmaVan
	rails    rails
	paths    int           // how many rails there may be
	token    uint64        // names the connection to its rails; 0 with one path
	routes   []route       // of its paths, at the side that has dialled
	attempts atomic.Uint32 // to connect a path again
	name     string        // the peer, for people
	parts.UserValue

	mu  sync.Mutex // guards out, and the posting of sends
	out sender
	in  receiver // the poller's

	state   atomic.Uint32 // bits below
	cause   atomic.Pointer[error]
	flushed atomic.Pointer[error] // a request was flushed, and nothing says why
	end     ending                // the undertaker's

	hurt      atomic.Bool // a rail has failed, and the peer may not have all that went over it
	noted     atomic.Bool // in the list of rdmaVan.noted
	nextNoted *endpoint

	since      time.Time   // it was accepted
	introduced atomic.Bool // the peer has said hello

	// The poller's.
	queued      bool // in poller.queue
	unannounced bool // accepted, and not announced
	lost        bool // EventLost was reported
	detached    bool // EventDetached was reported, or is not due
}

// Bits of endpoint.state.
const (
	reading  = 1 << iota // the poller may be using the memory of the connection, or writing to placed memory
	failed               // the connection has broken
	closed               // by this side
	dead                 // nothing can come or be posted any more
	finished             // the poller needs the memory of the connection no more
)

func (v *rdmaVan) newEndpoint(c *connection, number uint32, name string, g *greeting) *endpoint {
	e := &endpoint{v: v, name: name, paths: g.paths, token: g.connection()}
	e.end.e = e
	e.out.init(e, &v.opt)
	e.in.init(e, c.receives, &v.opt)
	e.rails.init(newRail(e, c, number, g))
	return e
}

// several reports whether the connection may have several rails.
func (e *endpoint) several() bool { return e.paths > 1 }

// Peer implements van.Endpoint.
func (e *endpoint) Peer() string { return e.name }

// Send implements van.Endpoint. Budget for a small message: no allocation, one uncontended lock, one copy, one call of
// the library.
func (e *endpoint) Send(m *van.Message) error {
	if _, err := e.v.caps.Check(m); err != nil {
		return err
	}
	e.mu.Lock()
	if e.rails.isShort() {
		e.mu.Unlock()
		e.v.poller.takeCompletions()
		e.mu.Lock()
	}
	defer e.mu.Unlock()
	if e.state.Load()&(failed|closed) != 0 {
		return e.endError("send")
	}
	if err := e.out.send(m); err != nil {
		return err
	}
	if e.out.waiting.Load() {
		e.note()
	}
	return nil
}

// endError is the error of operations when the endpoint has ended.
func (e *endpoint) endError(op string) error {
	if e.state.Load()&closed != 0 {
		return e.fault(op, stepvan.ErrClosed)
	}
	if err := e.cause.Load(); err != nil {
		return *err
	}
	return e.fault(op, stepvan.ErrPeerLost)
}

// fault gives err the context of this endpoint.
func (e *endpoint) fault(op string, err error) error {
	return &stepvan.OpError{Op: op, Van: vanName, Peer: e.name, Err: err}
}

// fail ends the endpoint because of the connection or the peer. The first cause stays. Concurrent.
func (e *endpoint) fail(op string, err error) {
	err = e.fault(op, err)
	e.cause.CompareAndSwap(nil, &err)
	if e.state.Or(failed)&(failed|closed) == 0 {
		e.v.undertaker.add(e)
	}
	e.note()
}

// Close implements van.Endpoint. When it returns, nothing of the van touches the memory that the Placer named. That
// holds for each of several callers.
func (e *endpoint) Close() error {
	before := e.state.Or(closed)
	e.await(reading)
	e.in.fetch.end(e)
	if before&closed != 0 {
		return nil
	}
	e.mu.Lock()
	e.out.ops.failUnposted(e.endError("send"))
	e.out.waiting.Store(false)
	e.mu.Unlock()
	e.v.undertaker.add(e)
	e.note()
	return nil
}

// enter begins a stretch in which the poller uses the memory of the connection and placed memory, unless the endpoint
// is closed.
func (e *endpoint) enter() bool { return e.enterBefore(closed) }

// enterBefore begins a stretch in which the poller uses the memory of the connection, unless the endpoint has reached
// a state.
func (e *endpoint) enterBefore(end uint32) bool {
	if e.state.Or(reading)&end != 0 {
		e.leave()
		return false
	}
	return true
}

func (e *endpoint) leave() { e.state.And(^uint32(reading)) }

// await waits for a stretch of the poller, which is short.
func (e *endpoint) await(bits uint32) {
	for e.state.Load()&bits != 0 {
		runtime.Gosched()
	}
}

// note makes the next Poll look at the endpoint, and wakes a driver that sleeps. Concurrent.
func (e *endpoint) note() {
	v := e.v
	if e.noted.CompareAndSwap(false, true) {
		e.nextNoted = v.noted.Load()
		for !v.noted.CompareAndSwap(e.nextNoted, e) {
			e.nextNoted = v.noted.Load()
		}
	}
	v.wake()
}

// step does what can be done for the endpoint, and reports whether there may be more to do at once. The poller's.
func (e *endpoint) step(out *sink) (more bool) {
	if e.unannounced {
		return e.announce(out)
	}
	if e.hurt.Load() {
		e.mend()
	}
	if e.state.Load()&(failed|closed) == 0 && (e.out.waiting.Load() || e.out.pending.Load()) {
		e.mu.Lock()
		e.out.resume()
		e.mu.Unlock()
	}
	if !e.complete(out) {
		return true
	}
	more = e.in.step(out)
	e.report()
	if e.state.Load()&(failed|closed) != 0 {
		return e.tellEnd(out) || more
	}
	return more || e.out.waiting.Load() || e.out.pending.Load()
}

// announce reports an endpoint that was accepted. It receives from the next Poll on.
func (e *endpoint) announce(out *sink) (more bool) {
	if e.state.Load()&(failed|closed) != 0 && !e.introduced.Load() {
		e.state.Or(finished) // it was never more than a visitor
		e.detached, e.unannounced, e.lost = true, false, true
		e.v.undertaker.add(e)
		return false
	}
	if !e.introduced.Load() {
		return false
	}
	if out.full() {
		return true
	}
	e.unannounced = false
	out.emit(van.Event{Kind: van.EventAccepted, Endpoint: e})
	return true
}

// complete hands out completions, and reports whether there was room for all.
func (e *endpoint) complete(out *sink) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	done := e.out.ops.finished
	n := 0
	for ; n < len(done) && !out.full(); n++ {
		out.emit(van.Event{Kind: van.EventCompletion, Endpoint: e, Op: done[n].op, Err: done[n].err})
	}
	e.out.ops.finished = append(done[:0], done[n:]...)
	clear(done[len(e.out.ops.finished):])
	return n == len(done)
}

// report tells the peer of the slots that are posted again.
func (e *endpoint) report() {
	for _, r := range e.rails.all() {
		if !r.postAgain() {
			continue
		}
		e.mu.Lock()
		if e.state.Load()&(failed|closed) == 0 && r.usable() {
			r.tell()
		}
		e.mu.Unlock()
	}
}

// tellEnd reports what is left of an endpoint that has ended, once nothing of it can come any more.
func (e *endpoint) tellEnd(out *sink) (more bool) {
	s := e.state.Load()
	if s&dead == 0 {
		return false // the undertaker notes the endpoint
	}
	if s&closed == 0 && !e.in.drained() {
		return false // it waits for credit
	}
	if !e.idle() || out.full() {
		return true
	}
	if !e.lost && s&closed == 0 {
		out.emit(van.Event{Kind: van.EventLost, Endpoint: e, Err: e.endError("receive")})
	}
	if !e.lost {
		e.lost = true
		e.state.Or(finished)
		e.v.undertaker.add(e)
	}
	if e.v.caps.OneSided && !e.detached {
		if out.full() {
			return true
		}
		e.detached = true
		out.emit(van.Event{Kind: van.EventDetached, Endpoint: e})
	}
	return false
}

func (e *endpoint) idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.out.ops.idle()
}

// maySleep reports whether the poller may sleep: nothing of the endpoint can be done now, and what comes wakes it.
func (e *endpoint) maySleep() bool {
	if e.state.Load()&(failed|closed) != 0 {
		return e.state.Load()&dead == 0 || e.lost || e.in.stuck()
	}
	if e.unannounced {
		return !e.introduced.Load()
	}
	if e.in.busy() {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state.Load()&(failed|closed) != 0 {
		return false
	}
	if e.in.arrival.fetching && !e.in.fetch.waits() {
		return false // a sender has taken the completion
	}
	return (!e.out.waiting.Load() || e.out.askWake()) && len(e.out.ops.finished) == 0
}
