package worker

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// A server withdraws chunks that this worker may be writing into. The worker then sends a fence, behind all requests
// that were to be written into them: nothing is written there after it.

// fenceTracker tells when the fence for a withdrawal can be sent to one server. By then the link must have all
// requests with targets that began before the withdrawal. The tracker counts them in two phases, so that nothing waits
// for requests that began later. Worker.mu guards it.
type fenceTracker struct {
	writing [2]int // requests that have targets and are not in the link yet, by phase
	phase   uint8  // of the requests that begin
	waiting uint32 // generation of the fence that waits for the other phase; 0 for none
	next    uint32 // of the fence behind that one
	due     uint32 // of the fence that can be sent
}

func (t *fenceTracker) begin() (phase uint8) {
	t.writing[t.phase]++
	return t.phase
}

func (t *fenceTracker) end(phase uint8) {
	t.writing[phase]--
	t.advance()
}

// request asks for a fence behind all requests that have begun.
func (t *fenceTracker) request(generation uint32) {
	if t.waiting != 0 {
		t.next = generation
		return
	}
	t.waiting = generation
	t.phase = 1 - t.phase
	t.advance()
}

func (t *fenceTracker) advance() {
	for t.waiting != 0 && t.writing[1-t.phase] == 0 {
		t.due, t.waiting = t.waiting, 0
		if t.next != 0 {
			t.waiting, t.next = t.next, 0
			t.phase = 1 - t.phase
		}
	}
}

// take returns the generation of the fence that can be sent, or 0. Its caller sends it.
func (t *fenceTracker) take() (generation uint32) {
	generation, t.due = t.due, 0
	return generation
}

// fenceSender sends fences after Worker.mu is released. Worker.mu guards it, except due.
type fenceSender struct {
	mu      *sync.Mutex // Worker.mu
	servers []*serverPeer
	due     atomic.Bool // there are servers
}

// note has the next send look at v. Under Worker.mu.
func (s *fenceSender) note(v *serverPeer) {
	if v.fences.due != 0 {
		s.servers = append(s.servers, v)
		s.due.Store(true)
	}
}

// send sends the fences that are due. If the link has no space for a fence, it stays due until the next call, which
// comes with the next request. Without locks. Budget while none is due: one load.
func (s *fenceSender) send() {
	if !s.due.Load() {
		return
	}
	for _, v := range s.take() {
		s.sendTo(v)
	}
}

func (s *fenceSender) take() []*serverPeer {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.servers
	s.servers = nil
	s.due.Store(false)
	return list
}

func (s *fenceSender) sendTo(v *serverPeer) {
	s.mu.Lock()
	generation := v.fences.take()
	s.mu.Unlock()
	if generation == 0 {
		return
	}
	err := v.session.Send(&link.Outbound{
		Channel: link.ChannelRequest, Op: wire.OpFence, Generation: generation, Flags: wire.FlagAckNow,
	})
	if errors.Is(err, stepvan.ErrWouldBlock) {
		s.mu.Lock()
		v.fences.due = max(v.fences.due, generation)
		s.note(v)
		s.mu.Unlock()
	}
}
