package rdma

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van"
)

// visitors are the accepted endpoints that nobody has settled, oldest first. Their number is bounded, and the time that
// they may take to say hello. One that has ended counts until its queue pair is destroyed.
type visitors struct {
	v     *rdmaVan
	mu    sync.Mutex
	list  []*endpoint
	clock *time.Timer
}

// minVisit is how long a peer that nobody knows may take before it has to make room for others.
const minVisit = 500 * time.Millisecond

var errCrowded = errors.New("too many peers connect that do not belong to the cluster: the oldest of them makes room")

var _ van.Settler = (*endpoint)(nil)

// Settle implements van.Settler.
func (e *endpoint) Settle() { e.v.visitors.remove(e) }

// makeRoom reports whether there is room for a peer that comes. Without any, the oldest visitor makes room once it had
// its time, and a later peer finds that.
func (s *visitors) makeRoom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(x *endpoint) bool { return x.state.Load()&dead != 0 })
	if len(s.list) < s.v.opt.Pending {
		return true
	}
	first := s.list[0]
	if first.state.Load()&(failed|closed) == 0 && time.Since(first.since) >= min(minVisit, s.v.opt.PendingTime) {
		first.fail("accept", fmt.Errorf("%w: %w", stepvan.ErrPeerLost, errCrowded))
	}
	return false
}

// hasRoomFor reports whether a further rail of an endpoint finds room. All visitors together have as many of these as
// there may be visitors.
func (s *visitors) hasRoomFor(e *endpoint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.list, e) {
		return true
	}
	n := 0
	for _, x := range s.list {
		n += len(x.rails.all()) - 1
	}
	return n < s.v.opt.Pending
}

// has reports whether nobody knows the peer.
func (s *visitors) has(e *endpoint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.list, e)
}

// add takes in a peer, for which there is room.
func (s *visitors) add(e *endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, e)
	if s.clock == nil {
		s.clock = time.AfterFunc(s.v.opt.PendingTime, s.expire)
	}
}

func (s *visitors) remove(e *endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(x *endpoint) bool { return x == e })
}

// expire ends the connections that have said nothing for too long.
func (s *visitors) expire() {
	s.v.poller.takeCompletions() // what has come while nobody polled counts
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = nil
	if s.v.ctx.Err() != nil {
		return
	}
	wait := s.v.opt.PendingTime
	for _, e := range s.list {
		left := s.v.opt.PendingTime - time.Since(e.since)
		switch {
		case e.introduced.Load():
		case left <= 0:
			e.fail("accept", errs.Protocol("hello", 0, "the peer has said nothing for %v", s.v.opt.PendingTime))
		default:
			wait = min(wait, left)
		}
	}
	if len(s.list) > 0 {
		s.clock = time.AfterFunc(max(wait, time.Millisecond), s.expire)
	}
}

// expireRail ends a further rail over which the peer has said nothing for too long.
func (s *visitors) expireRail(r *rail) {
	v := s.v
	if !v.members.beginCall() {
		return
	}
	defer v.members.calls.Done()
	v.poller.takeCompletions()
	if !r.ready.Load() {
		r.fail("accept", lossOf(fmt.Errorf("the peer has said nothing for %v", v.opt.PendingTime)))
	}
}

// stop ends the clock.
func (s *visitors) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clock != nil {
		s.clock.Stop()
	}
}
