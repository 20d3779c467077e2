package server

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// workerPeer is a worker as this server sees it, or a peer that is not paired. Guarded by Server.mu.
type workerPeer struct {
	id      wire.PeerID
	rank    stepvan.Rank
	name    string
	paired  bool
	session *link.Session // nil while the worker is not connected
	gone    error         // why the last session ended; nil before the first one

	first    *requestSlot // queue of complete requests, in order of arrival
	last     *requestSlot
	refusals int // how many of them were refused

	chunks       map[tensor.Key]*chunk
	ungranted    chunkSet // for which the van had no grant in this session
	grantsWarned bool     // the log has the warning about that

	outbox  []*message // refusals, announcements and answers that the link has not taken yet
	sending bool       // a goroutine offers one of them to the link
}

// sessionTable holds the sessions, and the ends of those that ended too early. Guarded by Server.mu.
type sessionTable struct {
	open  map[*link.Session]*workerPeer
	early map[wire.PeerID]error // why the session of a peer has ended before Join
}

// left reports whether the worker is gone after a goodbye.
func (w *workerPeer) left() bool { return errors.Is(w.gone, link.ErrLeft) }

// openSession notes a session before anything else of it, and tells its worker of the registered chunks.
func (s *Server) openSession(session *link.Session) {
	s.mu.Lock()
	known := s.sessions.open[session] != nil
	var w *workerPeer
	if !known {
		peer := session.Peer()
		if w = s.workerWithoutSession(peer.ID); w == nil {
			w = &workerPeer{id: peer.ID, rank: -1, name: peer.Name}
		}
		w.session, w.gone = session, nil
		s.sessions.open[session] = w
		s.buffers.announceAll(w)
	}
	s.mu.Unlock()
	if !known {
		s.messages.flush(w)
	}
}

// workerWithoutSession returns the paired worker with this ID that has no session, or nil. Under s.mu.
func (s *Server) workerWithoutSession(id wire.PeerID) *workerPeer {
	return s.findWorker(func(w *workerPeer) bool { return w.id == id && w.session == nil })
}

// workerOf returns the paired worker with this rank, or nil. Under s.mu.
func (s *Server) workerOf(rank stepvan.Rank) *workerPeer {
	return s.findWorker(func(w *workerPeer) bool { return w.rank == rank })
}

func (s *Server) findWorker(match func(*workerPeer) bool) *workerPeer {
	if i := slices.IndexFunc(s.workers, match); i >= 0 {
		return s.workers[i]
	}
	return nil
}

// endSession notes that a session has ended. Complete requests stay for GetBatch.
func (s *Server) endSession(session *link.Session, err error) {
	var later deferredWork
	s.mu.Lock()
	if w := s.sessions.open[session]; w != nil {
		delete(s.sessions.open, session)
		clear(w.ungranted) // the next session announces all chunks
		w.session, w.gone = nil, err
		s.noteEarly(w)
		for _, c := range w.chunks {
			if c.session == session {
				s.buffers.withdraw(c, 0)
			}
		}
		s.buffers.reclaim(session, math.MaxUint32, &later) // no fence comes any more
		later.fail, later.failure, later.wake = w.outbox, err, true
		w.outbox = nil
	}
	s.mu.Unlock()
	later.run(s)
}

// noteEarly notes for Join that the session of a peer has ended. Under Server.mu.
func (s *Server) noteEarly(w *workerPeer) {
	if s.workers != nil {
		return
	}
	if s.sessions.early == nil {
		s.sessions.early = map[wire.PeerID]error{}
	}
	s.sessions.early[w.id] = w.gone
}

// failure returns the error of an operation that failed because of this worker.
func (w *workerPeer) failure(op string, err error) error { return link.PeerError(op, "", w.name, err) }

// breakOff ends the session with a worker that has broken the protocol.
func (s *Server) breakOff(session *link.Session, err error) {
	s.endSession(session, fmt.Errorf("%w: %w", stepvan.ErrPeerLost, err))
	session.BreakOff(err.Error()) // this server has lost it in any case
}
