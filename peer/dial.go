package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
)

// dial is how this peer opens the session with another one. Peer.mu guards it.
type dial struct {
	active bool // a goroutine opens the session, or waits for its turn
	asking bool // it has asked the other peer, which has not answered
	urgent bool // an operation of this peer waits for the session
	met    bool // there was a session since the dial began
	again  bool // that session broke, and another one is wanted
	lost   bool // there was a session at any time, and it broke

	cancel func() // ends the attempt that is in flight; nil without one
	failed uint64 // how many dials have failed
	why    error  // the last of them
}

// dials are what the dials of a peer have in common.
type dials struct {
	inFlight chan struct{} // has room for those that may be
	opened   time.Time     // when the last session was opened, by whichever side. Under Peer.mu
}

const (
	// dialTime is how long the first session with a peer may take to open. The peer is in the list of the scheduler, so
	// it listens. Options.Redial is the time for a session in place of one that broke.
	dialTime = 15 * time.Second
	// shortPause and longPause bound the time between two attempts while the peer itself dials this one. It doubles.
	shortPause, longPause = 5 * time.Millisecond, 160 * time.Millisecond
	// turnShare is the part of its time that a dial waits for others to end. Those may wait for peers that do not
	// answer.
	turnShare = 3
)

// connect has a goroutine open the session, unless there is one or another goroutine does so. The lower rank of a pair
// dials, and the higher one too after a head start. Both dial at once if it is urgent, because an operation waits for
// the session.
func (r *remote) connect(urgent bool) {
	if r.session != nil || r.self() || r.dead != nil {
		return
	}
	d := &r.dial
	switch {
	case !d.active:
		d.active, d.urgent, d.met = true, urgent, false
		go r.openSession()
	case d.met:
		d.again, d.urgent = true, d.urgent || urgent
		d.stop()
	case urgent && !d.urgent:
		d.urgent = true
		r.notify()
	}
}

// stop ends the attempt that is in flight.
func (d *dial) stop() {
	if d.cancel != nil {
		d.cancel()
	}
}

// openSession opens the session. When two peers dial each other at once, the one with the lower rank refuses the other,
// whose attempts then fail until the session of the lower one is open.
func (r *remote) openSession() {
	p := r.peer
	defer p.opt.Recover()
	r.giveHeadStart()
	limit := r.timeToDial()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	defer r.takeTurn(limit / turnShare)()
	for pause := shortPause; r.beginAsking(cancel); pause = min(2*pause, longPause) {
		_, err := p.opt.Dial(ctx, r.Rank)
		changed := r.endAsking(ctx, err)
		if changed == nil {
			return
		}
		select {
		case <-changed:
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// timeToDial is how long the session may take to open. The scheduler tells soon of a peer that has died. So a session
// that broke and does not come back quickly has another cause, of which operations are told instead of waiting.
func (r *remote) timeToDial() time.Duration {
	p := r.peer
	p.mu.Lock()
	defer p.unlock()
	if r.dial.lost {
		return p.opt.Redial
	}
	return dialTime
}

// takeTurn waits until this side may dial, or need not any more, but at most for some time. leave ends the turn.
func (r *remote) takeTurn(most time.Duration) (leave func()) {
	p := r.peer
	late := time.After(most)
	for changed := r.stillNeeded(); changed != nil; changed = r.stillNeeded() {
		select {
		case p.dials.inFlight <- struct{}{}:
			return func() { <-p.dials.inFlight }
		case <-changed:
		case <-late:
			return func() {}
		}
	}
	return func() {}
}

// stillNeeded returns what tells of the next change, or nil when this side need not dial any more.
func (r *remote) stillNeeded() (changed <-chan struct{}) {
	p := r.peer
	p.mu.Lock()
	defer p.unlock()
	if r.needless() {
		return nil
	}
	return r.awaitChange()
}

// giveHeadStart lets the other side dial if that has the lower rank. Where many peers connect, it gives up only when
// none has connected with this one for a while.
func (r *remote) giveHeadStart() {
	for began := time.Now(); ; {
		left, changed := r.headStart(began)
		if left <= 0 {
			return
		}
		select {
		case <-changed:
		case <-time.After(left):
		}
	}
}

// headStart is how long the other side may dial alone.
func (r *remote) headStart(began time.Time) (left time.Duration, changed <-chan struct{}) {
	p := r.peer
	p.mu.Lock()
	defer p.unlock()
	if p.rank < r.Rank || r.dial.urgent || r.needless() {
		return 0, nil
	}
	if p.dials.opened.After(began) && !r.dial.lost {
		began = p.dials.opened
	}
	return p.opt.HeadStart - time.Since(began), r.awaitChange()
}

// needless reports whether there is a session, or was one that has been lost, or the peer is dead. Under Peer.mu.
func (r *remote) needless() bool { return r.dial.met || r.dead != nil }

// beginAsking reports whether this side is still to dial. cancel ends the attempt early.
func (r *remote) beginAsking(cancel func()) bool {
	p := r.peer
	p.mu.Lock()
	defer p.unlock()
	if r.needless() {
		r.dialled(nil)
		return false
	}
	r.dial.asking, r.dial.cancel = true, cancel
	return true
}

// endAsking takes the outcome of an attempt. It returns what to wait for before another one, or nil at the end.
func (r *remote) endAsking(ctx context.Context, err error) (changed <-chan struct{}) {
	p := r.peer
	p.mu.Lock()
	defer p.unlock()
	r.dial.asking, r.dial.cancel = false, nil
	if r.needless() {
		err = nil
	}
	if err == nil || ctx.Err() != nil || !errors.Is(err, stepvan.ErrRemote) {
		r.dialled(err)
		return nil
	}
	return r.awaitChange()
}

// dialled ends the attempt to open a session. err says why that failed.
func (r *remote) dialled(err error) {
	d := &r.dial
	again, urgent := d.again, d.urgent
	d.active, d.urgent, d.again = false, false, false
	switch {
	case again:
		r.connect(urgent)
	case err != nil && r.session == nil:
		// The text of err tells why. The error itself names an address, and has a deadline that is not the caller's.
		d.why = fmt.Errorf("%w: there is no connection: %s", stepvan.ErrPeerLost, err.Error())
		d.failed++
		r.fail(d.why)
	}
	r.notify()
}
