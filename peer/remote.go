package peer

import (
	"context"
	"errors"
	"maps"
	"slices"
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
	dial    dial
	dead    error         // it died, left, or the cluster is over
	broke   error         // why its last session is over; nil while it has one
	lost    time.Time     // when something with it failed last because there is no connection
	left    error         // it has left, and its session ends soon
	losses  int           // of sessions, but those of a peer that has left
	changed chan struct{} // closed at the next change of session, dial or dead; nil when nobody waits
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
	r.dial.stop()
	r.fail(cause)
	r.notify()
}

// fail fails what is in flight with this peer.
func (r *remote) fail(cause error) {
	r.lost = time.Now()
	r.open.fail(r.named(cause)) // before the messages, whose ends would have the edges tell the peer
	r.peer.outbox.drop(&r.backlog, cause)
	r.stock.fail(cause)
	r.mail.fail()
	r.peer.windows.fail(r, cause)
	r.letters.fail(r.failure("connection", cause))
	r.peer.users.tellLost(r.Rank, r.named(cause))
}

// Connect opens the sessions with peers that have none, and waits for them. Without it, the first operation that names
// a peer opens the session. The error names the first peer that could not be reached, and says why. A peer gets 15
// seconds to answer, and 1.5 seconds when an earlier session with it broke.
func (p *Peer) Connect(ctx context.Context, ranks ...stepvan.Rank) error {
	remotes, failed := make([]*remote, len(ranks)), make([]uint64, len(ranks))
	for i, rank := range ranks { // all are dialled at once, as far as dials may be in flight
		p.mu.Lock()
		r, err := p.find("connect", rank)
		if err == nil {
			remotes[i], failed[i] = r, r.dial.failed
			r.connect(false)
		}
		p.unlock()
		if err != nil {
			return err
		}
	}
	for i, r := range remotes {
		if err := r.await(ctx, failed[i]); err != nil {
			return err
		}
	}
	return nil
}

// Flush waits until nothing that was sent waits for a connection. Without that, a node that leaves would take its last
// messages along.
func (s *Service) Flush(ctx context.Context) {
	p := s.peer
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.ids))
	p.unlock()
	for _, r := range all {
		for {
			p.mu.Lock()
			waits := r.dead == nil && r.session == nil && !r.backlog.empty()
			changed := r.awaitChange()
			p.unlock()
			if !waits {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// await waits for the session with a peer, after so many dials have failed.
func (r *remote) await(ctx context.Context, failed uint64) error {
	for {
		changed, err := r.checkSession(failed)
		if changed == nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return &stepvan.OpError{Op: "connect", Peer: r.Name, Err: errs.Late("there was no connection in time", ctx.Err())}
		}
	}
}

// checkSession returns what tells of the next change while there is no session. Later it returns nil, and an error if a
// dial has failed since failed of them had.
func (r *remote) checkSession(failed uint64) (changed <-chan struct{}, err error) {
	p := r.peer
	p.mu.Lock()
	defer p.unlock()
	if _, err := p.find("connect", r.Rank); err != nil || r.self() || r.session != nil {
		return nil, err
	}
	if r.dial.failed > failed {
		return nil, r.failure("connect", r.dial.why)
	}
	r.connect(false)
	return r.awaitChange(), nil
}
