package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/files"
)

// remote is another peer as this one sees it. Peer.mu guards it.
type remote struct {
	Member
	peer    *Peer
	session *link.Session // open; nil without one
	grants  *files.Grants // of session
	dialing bool
	met     bool          // there was a session since the last call of connect
	dead    error         // it died, left, or the cluster is over
	changed chan struct{} // closed at the next change of session, dialing or dead; nil when nobody waits
	backlog messageQueue  // what the session has had no room for, or waits for the session
	stock   stock         // transfers that wait for their partner
	open    edgeList      // transfers and plans that name this peer
	mail    postbox
	letters letterbox
}

// self reports whether the remote is this peer.
func (r *remote) self() bool { return r.Rank == r.peer.rank }

// failure says which peer an operation failed with.
func (r *remote) failure(op string, err error) error {
	van := ""
	if r.session != nil {
		van = r.session.Van()
	}
	return link.PeerError(op, van, r.Name, err)
}

// named is cause as the error of an operation with this peer, unless it names an instance itself.
func (r *remote) named(cause error) error {
	if of := (*stepvan.OpError)(nil); errors.As(cause, &of) {
		return cause
	}
	return r.failure("connection", cause)
}

// notify tells those that wait for a change.
func (r *remote) notify() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// awaitChange returns a channel that is closed at the next change.
func (r *remote) awaitChange() <-chan struct{} {
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}

// end fails everything that names this peer, for good.
func (r *remote) end(cause error) {
	if r.dead == nil {
		r.dead = cause
	}
	r.fail(cause)
	r.notify()
}

// fail fails what is in flight with this peer.
func (r *remote) fail(cause error) {
	r.open.fail(r.named(cause)) // before the messages, whose ends would have the edges tell the peer
	r.peer.outbox.drop(&r.backlog, cause)
	r.stock.fail(cause)
	r.peer.windows.fail(r, cause)
	r.letters.fail(r.failure("connection", cause))
}

// Connect opens the sessions with peers that have none, and waits for them. Without it, the first operation that names
// a peer opens the session. The error names the first peer that could not be reached.
func (p *Peer) Connect(ctx context.Context, ranks ...stepvan.Rank) error {
	remotes := make([]*remote, len(ranks))
	for i, rank := range ranks { // all are dialled at once
		p.mu.Lock()
		r, err := p.find("connect", rank)
		if err == nil {
			remotes[i] = r
			r.connect()
		}
		p.unlock()
		if err != nil {
			return err
		}
	}
	for _, r := range remotes {
		if err := r.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// await waits for the session with a peer.
func (r *remote) await(ctx context.Context) error {
	p := r.peer
	for {
		p.mu.Lock()
		_, err := p.find("connect", r.Rank)
		if err != nil || r.self() || r.session != nil {
			p.unlock()
			return err
		}
		r.connect()
		changed := r.awaitChange()
		p.unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return &stepvan.OpError{Op: "connect", Peer: r.Name, Err: errs.Late("there was no connection in time", ctx.Err())}
		}
	}
}

// connect has a goroutine open the session, unless there is one or another goroutine does so.
func (r *remote) connect() {
	if r.session != nil || r.self() || r.dead != nil {
		return
	}
	r.met = false
	if !r.dialing {
		r.dialing = true
		go r.dial()
	}
}

const (
	// dialTime is how long a peer may take to answer. It is in the list of the scheduler, so it listens.
	dialTime = 10 * time.Second
	// dialPause is the time between two attempts while the peer itself dials this one.
	dialPause = 5 * time.Millisecond
)

// dial opens the session. When two peers dial each other at once, the one with the lower rank refuses the other, whose
// attempts then fail until the session of the lower one is open.
func (r *remote) dial() {
	p := r.peer
	defer p.opt.Recover()
	ctx, cancel := context.WithTimeout(context.Background(), dialTime)
	defer cancel()
	for {
		_, err := p.opt.Dial(ctx, r.Rank)
		p.mu.Lock()
		if r.met || r.dead != nil {
			err = nil
		}
		if err == nil || ctx.Err() != nil || !errors.Is(err, stepvan.ErrRemote) {
			r.dialed(err)
			p.unlock()
			return
		}
		changed := r.awaitChange()
		p.unlock()
		select {
		case <-changed:
		case <-time.After(dialPause):
		case <-ctx.Done():
		}
		if r.endDial() {
			return
		}
	}
}

// endDial ends the attempt to open a session if that is not needed any more: there is one, or was one that has been
// lost, or the peer is dead.
func (r *remote) endDial() bool {
	p := r.peer
	p.mu.Lock()
	defer p.unlock()
	if !r.met && r.dead == nil {
		return false
	}
	r.dialed(nil)
	return true
}

// dialed ends the attempt to open a session. err says why that failed.
func (r *remote) dialed(err error) {
	r.dialing = false
	if err != nil && r.session == nil {
		// The text of err tells why. The error itself names an address, and has a deadline that is not the caller's.
		r.fail(fmt.Errorf("%w: there is no connection: %s", stepvan.ErrPeerLost, err.Error()))
	}
	r.notify()
}
