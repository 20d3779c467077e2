package tcpvan

import (
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/van"
)

const (
	epollBatch = 128
	// patience is how often Poll(events, false) may find nothing at the endpoints that
	// were active lately before it asks epoll about all.
	patience = 8
)

// source is something in the epoll set. Poll calls ready with what epoll said.
type source interface{ ready(mask uint32) }

// Poll implements van.Van. One caller at a time; a second one gets 0.
func (v *tcp) Poll(events []van.Event, all bool) int {
	if len(events) == 0 || !v.polling.CompareAndSwap(false, true) {
		return 0
	}
	if v.armed.Load() {
		v.armed.Store(false)
	}
	v.events = events[:0:len(events)]
	v.round++
	v.takeNotes()
	v.checkPending()
	v.checkStalls()
	v.announce()
	ask := all || v.curious()
	v.queueHot(ask)
	if ask {
		v.misses, v.asked = 0, v.round
		v.pollKernel()
		v.announce()
	}
	before := v.touched
	v.runQueue()
	if v.misses++; v.touched != before {
		v.misses = 0
	}
	v.moved = v.touched != before
	n := len(v.events)
	v.events = nil
	v.polling.Store(false)
	return n
}

// Moved implements van.Mover.
func (v *tcp) Moved() bool { return v.moved }

// curious reports whether it is time to ask epoll about all endpoints.
func (v *tcp) curious() bool {
	return v.misses >= patience || v.hot[0] == nil || v.round-v.asked >= attention || v.strays > 0 && len(v.run) == 0
}

// Arm implements van.Van. FD is an epoll set: it tells by itself what the kernel has.
func (v *tcp) Arm() bool {
	if len(v.run) > 0 || len(v.newcomers) > 0 {
		return false
	}
	v.cool()
	v.armed.Store(true)
	if v.noteCount.Load() > 0 || v.expired.Load() || v.guardDue.Load() {
		v.armed.Store(false)
		return false
	}
	return true
}

// wake makes FD readable if somebody may sleep on it. Concurrent.
func (v *tcp) wake() {
	if v.armed.Load() && v.armed.CompareAndSwap(true, false) {
		v.mu.Lock()
		if v.epfd >= 0 {
			signalEventfd(v.evfd)
		}
		v.mu.Unlock()
	}
}

// emit appends an event for the caller of Poll; false when there is no room.
func (v *tcp) emit(e van.Event) bool {
	if len(v.events) == cap(v.events) {
		return false
	}
	v.events = append(v.events, e)
	return true
}

// takeNotes puts endpoints that asked for attention into the queue.
func (v *tcp) takeNotes() {
	if v.noteCount.Load() == 0 {
		return
	}
	v.notesMu.Lock()
	list := v.notes
	v.notes = v.spare[:0]
	v.noteCount.Store(0)
	v.notesMu.Unlock()
	for _, ep := range list {
		ep.noted.Store(false)
		v.enqueue(ep)
	}
	clear(list)
	v.spare = list
}

// enqueue has the endpoint looked at by this Poll or, once the queue has run, by the next.
func (v *tcp) enqueue(ep *endpoint) {
	if !ep.queued {
		ep.queued = true
		v.run = append(v.run, ep)
	}
}

// runQueue moves every queued endpoint once; those with more to do stay queued. When the caller's
// events are full the rest waits, and comes first in the next call.
func (v *tcp) runQueue() {
	if len(v.run) == 0 {
		return
	}
	list := v.run
	v.run = v.idle[:0]
	for i, ep := range list {
		if len(v.events) == cap(v.events) {
			again := v.run
			v.run = append(list[:copy(list, list[i:])], again...)
			clear(list[len(v.run):])
			list = again
			break
		}
		ep.queued = false
		if ep.fresh {
			continue // announce queues it
		}
		if ep.born == v.round || ep.step() {
			v.enqueue(ep)
		}
	}
	clear(list)
	v.idle = list
}

// pollKernel asks epoll what is ready and queues it.
func (v *tcp) pollKernel() {
	v.door.Lock()
	defer v.door.Unlock()
	for {
		n := v.waitKernel()
		for i := range n {
			if s := v.readySet[i]; s != nil {
				s.ready(v.kernel[i].Events)
				v.readySet[i] = nil
			}
		}
		if n < epollBatch {
			return
		}
	}
}

func (v *tcp) waitKernel() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.epfd < 0 {
		return 0
	}
	n := epollWait(v.epfd, v.kernel[:])
	for i := range n {
		if slot := v.kernel[i].Fd; slot >= 0 && int(slot) < len(v.sources) {
			v.readySet[i] = v.sources[slot]
		}
	}
	return n
}

// gone are the events that say that the peer will send no more.
const gone = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR

// ready implements source.
func (c *conn) ready(mask uint32) {
	if mask&(unix.EPOLLIN|gone) != 0 {
		c.readable = true
	}
	if mask&gone != 0 {
		c.hup = true
	}
	if mask&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		c.unblock()
	}
	c.ep.v.enqueue(c.ep)
}

// place appends to iov where the next bytes of a span go, at most limit bytes,
// and returns their number. One entry is left for the staging buffer.
func (v *tcp) place(iov []unix.Iovec, dst [][]byte, s span, limit int) ([]unix.Iovec, int) {
	size := 0
	for size < limit && len(iov) < maxIovecs-1 {
		b := s.chunk(dst)
		if b == nil {
			break
		}
		b = b[:min(len(b), limit-size)]
		iov = append(iov, iovec(b))
		size += len(b)
		s.skip(len(b))
	}
	return iov, size
}
