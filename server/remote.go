package server

import (
	"errors"
	"fmt"
	"math"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// remote is a peer as this server sees it. Guarded by Server.mu.
type remote struct {
	node    wire.PeerID
	rank    stepvan.Rank
	name    string
	paired  bool          // it is one of the server's workers
	session *link.Session // nil until the worker has dialled
	gone    error         // why there is no session any more
	left    bool          // because it said goodbye

	chunks map[tensor.Key]*chunk
	first  *incoming // requests that are whole, in order of arrival
	last   *incoming

	refusals int // of these entries

	outbox  []*letter // refusals and announcements that the link has not taken yet
	scant   bool      // it was said that not all chunks can be lent to it
	unlent  chunkSet  // that there was no grant for in this session
	posting bool      // somebody offers the first of them to the link
}

// opened meets a session before anything else of it. Workers are told what is registered for them.
func (s *Server) opened(session *link.Session) {
	s.mu.Lock()
	if s.sessions[session] != nil {
		s.mu.Unlock()
		return
	}
	peer := session.Peer()
	r := s.workerAt(peer.ID)
	if r == nil {
		r = &remote{node: peer.ID, rank: -1, name: peer.Name}
	}
	r.session, r.gone, r.left = session, nil, false
	s.sessions[session] = r
	s.announceAll(r)
	s.mu.Unlock()
	s.pump(r)
}

// workerAt finds a paired worker without a session. Under s.mu.
func (s *Server) workerAt(node wire.PeerID) *remote {
	for _, r := range s.workers {
		if r.node == node && r.session == nil {
			return r
		}
	}
	return nil
}

// lose notes that a session is over. Requests that are whole stay for GetBatch.
func (s *Server) lose(session *link.Session, err error) {
	s.mu.Lock()
	r := s.sessions[session]
	if r == nil {
		s.mu.Unlock()
		return
	}
	delete(s.sessions, session)
	clear(r.unlent) // another session begins with all of them
	r.session, r.gone, r.left = nil, err, errors.Is(err, link.ErrLeft)
	box := r.outbox
	r.outbox = nil
	for _, c := range r.chunks {
		if c.lentTo == session {
			s.retract(c, 0)
		}
	}
	back := s.due(session, math.MaxUint32) // fences do not come any more
	s.mu.Unlock()
	s.takeBack(back)
	for _, l := range box {
		s.Done(&l.out, err)
	}
	s.node.Engine().Set(&s.arrival)
}

// breakOff ends the session with a worker that does not speak the protocol.
func (s *Server) breakOff(session *link.Session, err error) {
	s.lose(session, fmt.Errorf("%w: %w", stepvan.ErrPeerLost, err))
	_ = session.Close(err.Error()) // it is lost for this server either way
}

// push appends a whole request to the queue. Under s.mu.
func (s *Server) push(r *remote, in *incoming) {
	if r.last == nil {
		r.first = in
		s.ready++
	} else {
		r.last.next = in
	}
	r.last = in
	if in.stage == refused {
		r.refusals++
		s.refusals++
	}
}

// pop takes the first request off the queue. Under s.mu.
func (s *Server) pop(r *remote) *incoming {
	in := r.first
	r.first, in.next = in.next, nil
	if r.first == nil {
		r.last = nil
		s.ready--
	}
	if in.stage == refused {
		r.refusals--
		s.refusals--
	}
	return in
}

// failure says which worker an operation failed with.
func (r *remote) failure(op string, err error) error {
	var lost *stepvan.OpError
	switch {
	case !errors.As(err, &lost):
	case lost.Op == "session":
		err = lost.Err // which names the same peer
	case lost.Peer != "" && lost.Peer != r.name:
		return errs.Ended(op, err) // another one that the cluster cannot do without
	}
	if first := link.FirstCause(err); first != "" {
		return &stepvan.OpError{Op: op, Peer: first, Err: fmt.Errorf("%w: with it %s is lost: %w", stepvan.ErrPeerLost, r.name, err)}
	}
	if errors.Is(err, link.ErrLeft) {
		err = fmt.Errorf("%w: %w", stepvan.ErrPeerLost, err)
	}
	return &stepvan.OpError{Op: op, Peer: r.name, Err: err}
}
