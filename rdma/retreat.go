package rdma

import (
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van/parts"
)

// retreat is how far the end of a rail is, of which others are left. The undertaker's.
type retreat struct {
	r     *rail
	phase phase
	since time.Time // of the phase
}

// advance goes a step further, and reports whether there was one. When the endpoint ends, it takes over.
func (t *retreat) advance() (moved bool) {
	r := t.r
	e := r.e
	if e.state.Load()&(failed|closed) != 0 {
		e.v.undertaker.removeRail(r)
		return true
	}
	switch t.phase {
	case flushing:
		if why := *r.loss.cause.Load(); !errors.Is(why, parts.ErrClosedByPeer) { // else all may end, one after another
			tellPath(e, r.index, why)
		}
		r.shut()
		t.phase, t.since = draining, time.Now()
	case draining:
		if r.drains() && time.Since(t.since) < drainTime {
			return false
		}
		r.destroy()
		e.note()
		t.phase, t.since = destroyed, time.Now()
	case destroyed:
		settled, awaits := t.progress()
		if settled {
			tellPath(e, r.index, errTakenOut) // unless that was told
			t.remove()
			e.v.undertaker.removeRail(r)
			e.note()
			return true
		}
		if awaits && time.Since(t.since) > e.v.opt.PendingTime {
			e.fail("receive", fmt.Errorf("%w: %w", stepvan.ErrPeerLost,
				errs.Protocol("record", 0, "the peer does not say what has come over rail %d", r.index)))
		}
		return false
	}
	return true
}

// shut ends the rail at both sides. The calls may block, so no driver waits for them.
func (r *rail) shut() {
	r.queue.stop()
	_ = r.conn.id.Disconnect()
	_ = r.conn.qp.Fail()
}

// stop has nothing posted any more.
func (q *sendQueue) stop() {
	q.rail.e.mu.Lock()
	defer q.rail.e.mu.Unlock()
	q.shut = true
}

// drains reports whether something may still come.
func (r *rail) drains() bool { return r.outstanding.Load() > 0 && !r.loss.shut.Load() }

// destroy destroys the queue pair. It may block.
func (r *rail) destroy() {
	if r.loss.shut.Load() {
		return
	}
	v := r.e.v
	v.manager.remove(r.conn.id)
	r.queue.stop()     // of a rail that was added while the endpoint ended
	r.e.await(reading) // the poller may be posting receives
	r.conn.destroy()
	v.members.unreserve(r.conn)
	r.loss.shut.Store(true)
}

// progress reports whether everything that went over the rail has arrived, or has gone over another, and whether the
// peer must say what has arrived.
func (t *retreat) progress() (settled, awaits bool) {
	r := t.r
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	return r.loss.settled, r.awaits()
}

// remove forgets the rail, and gives its memory back.
func (t *retreat) remove() {
	r, e := t.r, t.r.e
	e.v.members.forget(r)
	e.out.forget(r)
	e.await(reading)
	r.conn.free()
	connectAgain(r)
}

func (s *sender) forget(r *rail) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.e.rails.remove(r)
	add(&s.past, r.conn.counters())
}
