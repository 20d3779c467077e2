package worker

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/tensor"
)

// server is a peer as this worker sees it. It exists from the first event of
// its session, which may come before Join.
type server struct {
	session    *link.Session
	rank       stepvan.Rank
	name       string
	generation atomic.Uint32 // the latest registration that it announced

	// guarded by Worker.mu
	lost    error                // why it can take no more requests
	places  map[tensor.Key]place // that it has registered
	writers writers
	files   map[uint64]file // of this process that it reaches, or could not be let into, by number
	gone    uint64          // files of this process that went back to the system since the session began
}

// session returns the peer of s. Under w.mu.
func (w *Worker) session(s *link.Session) *server {
	v := w.sessions[s]
	if v == nil {
		v = &server{session: s, rank: -1, name: s.Peer().Name, places: make(map[tensor.Key]place), files: make(map[uint64]file)}
		w.sessions[s] = v
	}
	return v
}

// opened meets a session before anything else of it.
func (w *Worker) opened(s *link.Session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session(s)
}

// lose fails everything that needs s, and every later request to it.
func (w *Worker) lose(s *link.Session, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost(s, err)
}

// lost is lose under Worker.mu. What it ends is over, and its keys are free, before anybody can see that.
func (w *Worker) lost(s *link.Session, err error) {
	v := w.sessions[s]
	if v == nil || v.lost != nil {
		return
	}
	delete(w.sessions, s)
	v.lost = v.failure(err)
	for _, p := range w.parts {
		// A part that is still being submitted fails when SendAll has returned.
		if p.server == v && p.call != nil && p.call.submitted {
			w.abandon(p)
		}
	}
}

// breakOff ends the session with a server that does not speak the protocol.
func (w *Worker) breakOff(s *link.Session, err error) {
	w.lose(s, fmt.Errorf("%w: %w", stepvan.ErrPeerLost, err))
	s.BreakOff(err.Error()) // it is lost for this worker either way
}

// failure says which server an operation failed with.
func (v *server) failure(err error) error {
	var op *stepvan.OpError
	if errors.As(err, &op) && op.Op == "session" {
		err = op.Err // which names the same peer
	}
	if first := link.FirstCause(err); first != "" {
		return &stepvan.OpError{Op: "push_pull", Peer: first, Err: fmt.Errorf("%w: with it %s is lost: %w", stepvan.ErrPeerLost, v.name, err)}
	}
	if errors.Is(err, link.ErrLeft) {
		err = fmt.Errorf("%w: %w", stepvan.ErrPeerLost, err)
	}
	return &stepvan.OpError{Op: "push_pull", Van: v.session.Van(), Peer: v.name, Err: err}
}
