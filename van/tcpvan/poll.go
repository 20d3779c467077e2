package tcpvan

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

const (
	epollBatch = 128
	// missesAllowed is how often Poll(events, false) may find nothing at the hot endpoints
	// before it asks epoll about all.
	missesAllowed = 8
)

// watched is something in the epoll set. Poll calls ready with what epoll said.
type watched interface{ ready(mask uint32) }

// Poll implements van.Van. One caller at a time; a second one gets 0.
func (v *tcpVan) Poll(events []van.Event, all bool) int {
	if len(events) == 0 || !v.polling.CompareAndSwap(false, true) {
		return 0
	}
	if v.armed.Load() {
		v.armed.Store(false)
	}
	v.poller.events = events[:0:len(events)]
	v.poller.round++
	v.takeNotes()
	v.checkPending()
	v.checkStalls()
	ask := all || v.poller.mustAskKernel()
	v.poller.queueHot(ask)
	if ask {
		v.poller.misses, v.poller.asked = 0, v.poller.round
		v.pollKernel()
	}
	before := v.poller.moves
	v.poller.runQueue()
	if v.poller.misses++; v.poller.moves != before {
		v.poller.misses = 0
	}
	v.poller.moved = v.poller.moves != before
	n := len(v.poller.events)
	v.poller.events = nil
	v.polling.Store(false)
	return n
}

// Moved implements van.Mover.
func (v *tcpVan) Moved() bool { return v.poller.moved }

// mustAskKernel reports whether it is time to ask epoll about all endpoints.
func (p *poller) mustAskKernel() bool {
	return p.misses >= missesAllowed || p.hot[0] == nil || p.round-p.asked >= askAfterCalls || p.distrust > 0 && len(p.queue) == 0
}

// Arm implements van.Van. FD is an epoll set: it tells by itself what the kernel has.
func (v *tcpVan) Arm() bool {
	if len(v.poller.queue) > 0 {
		return false
	}
	v.poller.cool()
	v.armed.Store(true)
	if v.noted.Load() != nil || v.expiry.due.Load() || v.silence.due.Load() {
		v.armed.Store(false)
		return false
	}
	return true
}

// wake makes FD readable if the driver may sleep on it. Concurrent.
func (v *tcpVan) wake() {
	if v.armed.Load() && v.armed.CompareAndSwap(true, false) {
		v.mu.Lock()
		v.set.epoll.Wake()
		v.mu.Unlock()
	}
}

// emit appends an event for the caller of Poll; false when there is no room.
func (p *poller) emit(e van.Event) bool {
	if len(p.events) == cap(p.events) {
		return false
	}
	p.events = append(p.events, e)
	return true
}

// takeNotes puts the endpoints that were noted into the queue.
func (v *tcpVan) takeNotes() {
	if v.noted.Load() == nil {
		return
	}
	for ep := v.noted.Swap(nil); ep != nil; {
		next := ep.nextNoted
		ep.nextNoted = nil
		ep.noted.Store(false)
		v.poller.enqueue(ep)
		ep = next
	}
}

// enqueue has the endpoint looked at by this Poll or, once the queue has run, by the next.
func (p *poller) enqueue(ep *endpoint) {
	if !ep.queued {
		ep.queued = true
		p.queue = append(p.queue, ep)
	}
}

// runQueue calls step once for every queued endpoint; those with more to do stay queued. When the caller's
// events are full the rest waits, and comes first in the next call.
func (p *poller) runQueue() {
	if len(p.queue) == 0 {
		return
	}
	list := p.queue
	p.queue = p.spare[:0]
	for i, ep := range list {
		if len(p.events) == cap(p.events) {
			again := p.queue
			p.queue = append(list[:copy(list, list[i:])], again...)
			clear(list[len(p.queue):])
			list = again
			break
		}
		ep.queued = false
		if ep.step() {
			p.enqueue(ep)
		}
	}
	clear(list)
	p.spare = list
}

// pollKernel asks epoll what is ready and queues it.
func (v *tcpVan) pollKernel() {
	v.accepting.Lock()
	defer v.accepting.Unlock()
	for {
		n := v.waitKernel()
		for i := range n {
			if s := v.poller.readySet[i]; s != nil {
				s.ready(v.poller.kernel[i].Events)
				v.poller.readySet[i] = nil
			}
		}
		if n < epollBatch {
			return
		}
	}
}

func (v *tcpVan) waitKernel() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.set.epoll.Wait(v.poller.kernel[:])
	for i := range n {
		if slot := v.poller.kernel[i].Fd; slot >= 0 && int(slot) < len(v.set.watched) {
			v.poller.readySet[i] = v.set.watched[slot]
		}
	}
	return n
}

// hangUp are the events that say that the peer will send no more.
const hangUp = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR

// ready implements watched.
func (c *conn) ready(mask uint32) {
	if mask&(unix.EPOLLIN|hangUp) != 0 {
		c.readable = true
	}
	if mask&hangUp != 0 {
		c.hup = true
	}
	if mask&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		c.unblock()
	}
	c.ep.v.poller.enqueue(c.ep)
}

// step sends, completes and receives for one endpoint, and reports whether there is more to do at once. Poll only.
func (ep *endpoint) step() (more bool) {
	if ep.unannounced {
		return ep.announce()
	}
	if ep.w.bypassed.Load() != 0 {
		ep.w.bypassed.Store(0) // it matters little which of two that happen at once comes first
	}
	if ep.visit != nil && ep.state.Load()&ended != 0 {
		ep.Settle()
	}
	if !ep.complete() {
		return true
	}
	if ep.w.out.pending() && !ep.blocked() {
		ep.w.pump()
		if !ep.complete() {
			return true
		}
	}
	if ep.w.sendErr.Load() != nil {
		ep.rails[0].readable = true // epoll may have told so before the failure
	}
	if !ep.lost && ep.state.Load()&ended == 0 {
		more = ep.rd.receive()
	}
	if ep.lost && !ep.lossReported {
		return ep.tell()
	}
	return more || ep.w.more.Load() && ep.w.out.pending()
}

// complete hands out completions and reports whether there was room for all.
func (ep *endpoint) complete() bool {
	o := &ep.w.out
	i, done := o.polled.Load(), o.done.Load()
	if i == done {
		return true
	}
	for ; i != done; i++ {
		op := o.at(i)
		id, err := op.id, op.err
		if !ep.v.poller.emit(van.Event{Kind: van.EventCompletion, Endpoint: ep, Op: id, Err: err}) {
			break
		}
		op.err = nil
	}
	o.polled.Store(i)
	ep.v.poller.countMove(ep)
	return i == done
}

// tell reports the loss once all completions are handed out. It returns whether to try again soon.
func (ep *endpoint) tell() (more bool) {
	if ep.state.Load()&closed != 0 {
		ep.lossReported = true
		return false
	}
	if !ep.complete() {
		return true
	}
	if !ep.w.out.drained() {
		return false // the goroutine whose turn it is to write notes the endpoint
	}
	ep.lossReported = ep.v.poller.emit(van.Event{Kind: van.EventLost, Endpoint: ep, Err: ep.cause})
	return !ep.lossReported
}

// lose ends the endpoint because of the peer. A send that failed before is the reason why a stream ends, but not why
// its peer speaks another version. Such a peer closes the connection because of the version, and sends fail after that.
func (ep *endpoint) lose(err error) {
	ep.cause = ep.fault("receive", err)
	var version *wire.VersionError
	if errors.As(err, &version) {
		ep.w.shutRefuse()
	} else if first := ep.w.sendErr.Load(); first != nil {
		ep.cause = *first
	}
	ep.lost = true
	ep.end()
}
