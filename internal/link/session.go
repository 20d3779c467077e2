package link

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/van"
)

// sessionState is how far the life of a session has come. It only rises (advance), and may skip states.
type sessionState uint8

const (
	stateHandshake sessionState = iota // Hello or Welcome is outstanding
	stateOpen                          // it sends and receives
	stateClosing                       // the goodbye, or the refusal, follows what was accepted
	stateLost                          // everything unfinished has failed
)

// advance moves to a later state. It reports false, and changes nothing, when the session is there or further.
func (x *sessionState) advance(to sessionState) bool {
	if *x >= to {
		return false
	}
	*x = to
	return true
}

// Session is the link to one peer. All exported methods may be called from any goroutine.
//
// What each message touches lies together. A process with many sessions has more of it than its caches hold.
type Session struct {
	transport *Transport
	ep        van.Endpoint
	caps      van.Caps
	lost      bool // the driver drops later events of the van; driver only
	opening   opening
	peer      Identity

	mu    sync.Mutex // guards state, out, what acks and grants say, and err to grace
	state sessionState
	acks  acknowledgements
	out   sender
	in    receiver

	err         error // why the session was lost or refused
	goodbye     string
	goodbyeSent bool
	grace       *time.Timer // ends a session that is closing; nil before
	grants      grants

	dialled   bool
	address   string         // at which it was dialled
	passed    []PassedOver   // preferred addresses that were not taken
	ready     progress.Event // the handshake has ended
	tellFirst atomic.Bool    // TellLossFirst
}

// Peer is the identity that the peer has given.
func (s *Session) Peer() Identity { return s.peer }

// Van is the name of the van that carries the session.
func (s *Session) Van() string { return s.caps.Name }

// Address is the peer's address, for people.
func (s *Session) Address() string { return s.ep.Peer() }

// String names the peer: `worker 3 (10.0.0.7:4711)`.
func (s *Session) String() string {
	if s.peer.Name == "" {
		return s.ep.Peer()
	}
	return s.peer.Name + " (" + s.ep.Peer() + ")"
}

// Err is nil while the session can send, else why it cannot.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusal()
}

// refusal is why nothing can be sent any more. mu is held.
func (s *Session) refusal() error {
	switch s.state {
	case stateOpen:
		return nil
	case stateHandshake:
		return fmt.Errorf("session with %v is not open yet: %w", s, stepvan.ErrWouldBlock)
	case stateClosing:
		return s.wrap(stepvan.ErrClosed)
	default:
		return s.err
	}
}

// Close says goodbye after everything that was accepted, then ends the session. It returns at once; Handler.Lost tells
// the end. A peer that dialled and has not answered the handshake within a second gets no goodbye.
func (s *Session) Close(reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked(reason, s.out.held) // the peer may stay silent for ever
	return nil
}

// BreakOff is Close for a peer that broke the protocol. The session ends within a second of the goodbye, or of the
// first call if the goodbye cannot be sent. What was accepted before may be lost. Any goroutine.
func (s *Session) BreakOff(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked(reason, true)
	if s.state == stateClosing && s.grace == nil { // Close was called before
		s.endAfterGrace(stepvan.ErrClosed)
	}
}

// closeLocked begins to close s. With limit the session ends after a grace, whatever the peer does. mu is held.
func (s *Session) closeLocked(reason string, limit bool) {
	opened := s.state == stateOpen
	if !s.state.advance(stateClosing) {
		return
	}
	if limit || !opened {
		s.endAfterGrace(stepvan.ErrClosed)
	}
	if opened {
		s.goodbye = reason
		s.out.pump()
	}
}

// Drop ends the session at once, without goodbye. Handler.Lost gets cause, unless the session was lost for another
// reason that is still to be told. Any goroutine.
func (s *Session) Drop(cause error) { s.transport.endLater(s, cause) }

// wrap adds the peer and the van to the cause of an end.
func (s *Session) wrap(cause error) error {
	return &stepvan.OpError{Op: "session", Van: s.caps.Name, Peer: s.String(), Err: cause}
}
