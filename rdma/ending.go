package rdma

import (
	"time"

	"github.com/stepvan/stepvan/internal/verbs"
)

// ending is how far the end of an endpoint is. The undertaker's.
type ending struct {
	e     *endpoint
	phase phase
	since time.Time // of the phase
	freed bool
}

type phase uint8

const (
	doubtful  phase = iota // a request was flushed, and the cause may come
	flushing               // what was posted still reaches the peer
	draining               // what has come completes
	destroyed              // the queue pair is
)

const (
	doubtTime = 100 * time.Millisecond // for the cause of a flush
	flushTime = time.Second            // for a peer that does not answer
	drainTime = 500 * time.Millisecond // for a device that does not complete all receives
)

// advance goes a step further, and reports whether there was one.
func (n *ending) advance() (moved bool) {
	switch n.phase {
	case doubtful:
		if n.doubts() {
			return false
		}
		n.phase, n.since = flushing, time.Time{}
	case flushing:
		if n.flushes() {
			return false
		}
		n.shut()
	case draining:
		if n.drains() {
			return false
		}
		n.destroy()
	case destroyed:
		n.free()
		n.e.v.undertaker.remove(n.e)
		n.free() // the endpoint may have been closed between the look and the removal
	}
	return true
}

// doubts reports whether an endpoint that may have ended waits for the cause. It fails one for which none comes.
func (n *ending) doubts() bool {
	if n.since.IsZero() {
		n.since = time.Now()
	}
	if n.e.state.Load()&(failed|closed) != 0 {
		return false
	}
	if time.Since(n.since) < doubtTime {
		return true
	}
	n.e.fail("receive", *n.e.flushed.Load())
	return false
}

// flushes reports whether a closed endpoint waits until the peer has what was posted.
func (n *ending) flushes() bool {
	if n.since.IsZero() {
		n.since = time.Now()
	}
	if n.e.state.Load()&failed != 0 || time.Since(n.since) > flushTime {
		return false
	}
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	for _, r := range n.e.rails.all() {
		if !r.loss.begun.Load() && r.queue.flush() {
			return true
		}
	}
	return n.e.out.ops.first != n.e.out.ops.end
}

// shut ends the connection at both sides. The calls may block, so no driver waits for them.
func (n *ending) shut() {
	for _, r := range n.e.rails.all() {
		if !r.loss.shut.Load() {
			r.shut()
		}
	}
	n.phase, n.since = draining, time.Now()
}

// drains reports whether something may still come that the program has a right to.
func (n *ending) drains() bool {
	return n.e.state.Load()&closed == 0 && n.e.rails.count((*rail).drains) > 0 && time.Since(n.since) < drainTime
}

// destroy destroys the queue pairs and fails what is left.
func (n *ending) destroy() {
	e := n.e
	for _, w := range n.windows() {
		_ = w.Close() // a queue pair may wait for the windows that it has bound
	}
	for _, r := range e.rails.all() {
		r.destroy()
	}
	e.mu.Lock()
	e.out.ops.failAll(e.endError("send"))
	e.out.failGrants(e.endError("withdraw"))
	e.in.fetch.drop(&e.v.regions)
	e.out.waiting.Store(false)
	e.mu.Unlock()
	n.phase = destroyed
	e.state.Or(dead)
	e.note()
}

// windows takes the windows of all grants.
func (n *ending) windows() []*verbs.MW {
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	return n.e.out.windows.take(n.e.out.grants.byID)
}

// free gives the memory of the connection back, once nobody uses it. What runs under the lock of an endpoint leaves the
// memory alone once that has ended. So free needs no lock, for which a driver would wait.
func (n *ending) free() {
	e := n.e
	if n.freed || e.state.Load()&(closed|finished) == 0 {
		return
	}
	e.await(reading)
	n.freed = true
	for _, r := range e.rails.all() {
		e.v.members.forget(r)
		r.conn.free()
	}
}
