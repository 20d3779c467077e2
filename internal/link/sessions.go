package link

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// sessionSet holds the sessions of a transport that are not lost.
type sessionSet struct {
	mu        sync.Mutex
	all       map[*Session]struct{}
	earlyLoss map[van.Endpoint]error // of dialled connections that were lost before they had a session
	reachable int                    // lost sessions whose peers may still reach granted memory
	closed    bool                   // the transport is closed
	isEmpty   bool                   // emptied is closed
	emptied   chan struct{}          // closed when the last session of a closed transport is lost and detached
}

func (x *sessionSet) init() {
	x.all, x.earlyLoss, x.emptied = map[*Session]struct{}{}, map[van.Endpoint]error{}, make(chan struct{})
}

func (x *sessionSet) add(s *Session) {
	x.mu.Lock()
	x.all[s] = struct{}{}
	x.mu.Unlock()
}

// remove takes out a session that is lost. detaching: EventDetached will follow.
func (x *sessionSet) remove(s *Session, detaching bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, known := x.all[s]
	delete(x.all, s)
	if detaching {
		x.reachable++
	}
	if known {
		x.checkEmptyLocked()
	}
}

// detached notes that the peer of a lost session reaches nothing any more.
func (x *sessionSet) detached() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reachable--
	x.checkEmptyLocked()
}

// checkEmptyLocked closes emptied when nothing is left of the sessions of a closed transport. mu is held.
func (x *sessionSet) checkEmptyLocked() {
	if x.closed && !x.isEmpty && len(x.all) == 0 && x.reachable == 0 {
		x.isEmpty = true
		close(x.emptied)
	}
}

// close marks the transport as closed. It returns the sessions that are left, and false when it was closed already.
func (x *sessionSet) close() (left []*Session, first bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, false
	}
	x.closed = true
	x.checkEmptyLocked()
	return slices.Collect(maps.Keys(x.all)), true
}

func (x *sessionSet) list() []*Session {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Keys(x.all))
}

// open lists the sessions whose state is open.
func (x *sessionSet) open() []*Session {
	return x.where(func(s *Session) bool { return s.state == stateOpen })
}

// with lists the sessions with a peer.
func (x *sessionSet) with(peer wire.PeerID) []*Session {
	return x.where(func(s *Session) bool { return s.out.peerID == peer })
}

// where lists the sessions for which is returns true. It holds Session.mu during the call of is.
func (x *sessionSet) where(is func(*Session) bool) (found []*Session) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for s := range x.all {
		s.mu.Lock()
		if is(s) {
			found = append(found, s)
		}
		s.mu.Unlock()
	}
	return found
}

// attach makes s the session of ep. It returns an error when the van has reported the loss of ep before.
func (x *sessionSet) attach(ep van.Endpoint, s *Session) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err, lost := x.earlyLoss[ep]; lost {
		delete(x.earlyLoss, ep)
		return cmp.Or(err, stepvan.ErrPeerLost)
	}
	ep.SetUser(s)
	return nil
}

// keepEarlyLoss keeps the loss of an endpoint that Dial is about to attach. It returns false when Dial has attached it
// meanwhile.
func (x *sessionSet) keepEarlyLoss(ep van.Endpoint, err error) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if ep.User() != nil {
		return false
	}
	x.earlyLoss[ep] = err
	return true
}

// CountersOf tells what the devices of the vans have done for sessions, which may be over. It is nil for those over a
// van without devices.
func CountersOf(sessions []*Session) []*Counters {
	list := make([]*Counters, len(sessions))
	for i, s := range sessions {
		if counted, ok := s.ep.(van.Counted); ok {
			c := counted.Counters()
			list[i] = &c
		}
	}
	return list
}

// Traffic is how many messages have gone over a session. Pieces of large ones count.
type Traffic struct {
	Messages uint64
	Own      uint64 // besides, of the link itself: acknowledgements that no other message carried, for example
}

// TrafficOf is what this side has sent over sessions, which may be over.
func TrafficOf(sessions []*Session) []Traffic {
	list := make([]Traffic, len(sessions))
	for i, s := range sessions {
		s.mu.Lock()
		list[i] = Traffic{s.out.sequence, s.out.posted - s.out.sequence}
		s.mu.Unlock()
	}
	return list
}
