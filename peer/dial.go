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
	met    bool // there was a session since the last call of connect
}

// dials are what the dials of a peer have in common.
type dials struct {
	inFlight chan struct{} // has room for those that may be
	opened   time.Time     // when the last session was opened, by whichever side. Under Peer.mu
}

const (
	// dialTime is how long a peer may take to answer. It is in the list of the scheduler, so it listens.
	dialTime = 10 * time.Second
	// shortPause and longPause bound the time between two attempts while the peer itself dials this one. It doubles.
	shortPause, longPause = 5 * time.Millisecond, 160 * time.Millisecond
	// turnTime is how long a dial waits for others to end. Those may wait for peers that do not answer.
	turnTime = 5 * time.Second
)

// connect has a goroutine open the session, unless there is one or another goroutine does so. The lower rank of a pair
// dials, and the higher one too after a head start. Both dial at once if it is urgent, because an operation waits for
// the session.
func (r *remote) connect(urgent bool) {
	if r.session != nil || r.self() || r.dead != nil {
		return
	}
	d := &r.dial
	d.met = false
	if !d.active {
		d.active, d.urgent = true, urgent
		go r.openSession()
	} else if urgent && !d.urgent {
		d.urgent = true
		r.notify()
	}
}

// openSession opens the session. When two peers dial each other at once, the one with the lower rank refuses the other,
// whose attempts then fail until the session of the lower one is open.
func (r *remote) openSession() {
	p := r.peer
	defer p.opt.Recover()
	defer r.takeTurn()()
	ctx, cancel := context.WithTimeout(context.Background(), dialTime)
	defer cancel()
	for pause := shortPause; r.beginAsking(); pause = min(2*pause, longPause) {
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

// takeTurn waits until this side may dial, or need not any more. leave ends the turn.
func (r *remote) takeTurn() (leave func()) {
	p := r.peer
	r.giveHeadStart()
	late := time.After(turnTime)
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
	if p.dials.opened.After(began) {
		began = p.dials.opened
	}
	return p.opt.HeadStart - time.Since(began), r.awaitChange()
}

// needless reports whether there is a session, or was one that has been lost, or the peer is dead. Under Peer.mu.
func (r *remote) needless() bool { return r.dial.met || r.dead != nil }

// beginAsking reports whether this side is still to dial.
func (r *remote) beginAsking() bool {
	p := r.peer
	p.mu.Lock()
	defer p.unlock()
	if r.needless() {
		r.dialled(nil)
		return false
	}
	r.dial.asking = true
	return true
}

// endAsking takes the outcome of an attempt. It returns what to wait for before another one, or nil at the end.
func (r *remote) endAsking(ctx context.Context, err error) (changed <-chan struct{}) {
	p := r.peer
	p.mu.Lock()
	defer p.unlock()
	r.dial.asking = false
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
	r.dial.active, r.dial.urgent = false, false
	if err != nil && r.session == nil {
		// The text of err tells why. The error itself names an address, and has a deadline that is not the caller's.
		r.fail(fmt.Errorf("%w: there is no connection: %s", stepvan.ErrPeerLost, err.Error()))
	}
	r.notify()
}
