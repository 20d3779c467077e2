package worker

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/files"
	"github.com/stepvan/stepvan/tensor"
)

// serverPeer is a server as this worker sees it. It exists from the first event of
// its session, which may come before Join. Worker.mu guards it.
type serverPeer struct {
	session *link.Session
	rank    stepvan.Rank
	name    string
	lost    error // why it can take no more requests

	generation uint32               // of its latest announcement
	chunks     map[tensor.Key]chunk // that it has registered
	fences     fenceTracker

	granted *files.Grants
}

// peer returns the server of s. Under Worker.mu.
func (w *Worker) peer(s *link.Session) *serverPeer {
	v := w.sessions[s]
	if v == nil {
		v = &serverPeer{session: s, rank: -1, name: s.Peer().Name, chunks: make(map[tensor.Key]chunk)}
		v.granted = files.New(s, &w.lender.memory)
		w.sessions[s] = v
	}
	return v
}

// sessionEvents is what the handlers of all channels do alike.
type sessionEvents struct {
	link.BaseHandler
	w *Worker
}

// Opened implements link.Handler.
func (h sessionEvents) Opened(s *link.Session) error {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.peer(s)
	return nil
}

// Lost implements link.Handler.
func (h sessionEvents) Lost(s *link.Session, err error) { h.w.lose(s, err) }

// lose fails everything that needs s, and every later request to it.
func (w *Worker) lose(s *link.Session, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loseLocked(s, err)
}

// loseLocked is lose under Worker.mu. When somebody sees the loss, its requests are over and their keys are free.
func (w *Worker) loseLocked(s *link.Session, err error) {
	v := w.sessions[s]
	if v == nil || v.lost != nil {
		return
	}
	delete(w.sessions, s)
	v.lost = v.failure(err)
	for _, r := range w.exchanges.requests.All() {
		// A request that the link has not accepted yet fails when SendAll has returned.
		if x := r.exchange; r.server == v && x.state.accepted() && r.on(loseServer) {
			x.fail(v.lost)
			w.advance(x)
		}
	}
}

// breakOff ends the session with a server that does not speak the protocol.
func (h sessionEvents) breakOff(s *link.Session, err error) {
	h.w.lose(s, fmt.Errorf("%w: %w", stepvan.ErrPeerLost, err))
	s.BreakOff(err.Error()) // it is lost for this worker either way
}

// failure says which server an operation failed with.
func (v *serverPeer) failure(err error) error {
	return link.PeerError("push_pull", v.session.Van(), v.name, err)
}
