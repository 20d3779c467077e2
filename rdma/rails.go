package rdma

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/errs"
)

// maxPaths is how many rails a connection may have.
const maxPaths = 8

// rails lists the rails of an endpoint. One that has failed stays until the peer has all that went over it. endpoint.mu
// guards changes.
type rails struct {
	list    atomic.Pointer[[]*rail]
	dialled bool // at this side; set before the first rail joins the van

	telling sync.Mutex     // calls of PathOptions.Changed, one at a time
	missing [maxPaths]bool // paths that it has heard to be missing; telling guards it
}

func (s *rails) init(first *rail) {
	first.loss.listed.Store(true)
	s.list.Store(&[]*rail{first})
}

func (s *rails) all() []*rail { return *s.list.Load() }

// first is the only one of an endpoint with one path.
func (s *rails) first() *rail { return (*s.list.Load())[0] }

func (s *rails) add(r *rail) {
	list := append(slices.Clone(s.all()), r)
	s.list.Store(&list)
}

func (s *rails) remove(r *rail) {
	list := slices.DeleteFunc(slices.Clone(s.all()), func(x *rail) bool { return x == r })
	s.list.Store(&list)
}

// at finds the rail with an index, or nil.
func (s *rails) at(index int) *rail {
	for _, r := range s.all() {
		if r.index == index {
			return r
		}
	}
	return nil
}

// anyUsable returns a rail that messages may go over, or nil.
func (s *rails) anyUsable() *rail {
	for _, r := range s.all() {
		if r.usable() {
			return r
		}
	}
	return nil
}

// addRail adds a rail of a path that has none, and says hello at the side that has dialled. The error says why it
// cannot.
func (e *endpoint) addRail(r *rail) (err error) {
	defer func() {
		if err == nil {
			tellPath(e, r.index, nil)
		}
	}()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state.Load()&(failed|closed) != 0 {
		return e.endError("connect")
	}
	if old := e.rails.at(r.index); old != nil {
		if !old.ready.Load() {
			old.fail("accept", lossOf(errors.New("the peer has begun again")))
		}
		return errs.Protocol("private data", 6, "path %d is there already", r.index)
	}
	e.rails.add(r)
	r.loss.listed.Store(true)
	if e.rails.dialled {
		r.queue.postHello()
	}
	if r.loss.begun.Load() {
		r.takeOut("connect", lossOf(errors.New("the rail has failed meanwhile")))
	}
	return e.out.order.noteEarly(r)
}

// count counts the rails that fit.
func (s *rails) count(fits func(*rail) bool) (n int) {
	for _, r := range s.all() {
		if fits(r) {
			n++
		}
	}
	return n
}

// isShort reports whether Send must look for completions itself. So a program that only sends does not depend on
// one that polls.
func (s *rails) isShort() bool {
	for _, r := range s.all() {
		if q := &r.queue; q.requests.room() < fewRequests || q.buffers.free == 0 || r.flight.on && q.buffers.few() {
			return true
		}
	}
	return false
}

const fewRequests = 4

// post rings the doorbells of the rails that something was added to. endpoint.mu is held.
func (s *rails) post() {
	for _, r := range s.all() {
		r.queue.post()
	}
}

// wakeDue reports whether a peer that asked for it can be woken.
func (s *rails) wakeDue() bool { return s.count((*rail).wakeDue) > 0 }
