package link

import (
	"container/list"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

type sessionState uint8

const (
	stateHandshake sessionState = iota // Hello or Welcome is outstanding
	stateOpen
	stateClosing // goodbye follows what was accepted
	stateLost
)

// Session is the link to one peer. All exported methods may be called from any goroutine.
type Session struct {
	node        *Transport
	ep          van.Endpoint
	granter     van.Granter // nil over vans that are not one-sided
	caps        van.Caps
	dialled     bool
	address     string       // at which it was dialled
	passed      []PassedOver // preferred addresses that were not taken
	incarnation uint32       // own, as told in the handshake
	peer        Identity
	ready       progress.Event // the handshake has ended
	user        atomic.Value
	first       atomic.Bool // TellLossFirst

	// Sending side.
	mu         sync.Mutex
	state      sessionState
	err        error // why it was lost or refused
	peerNode   wire.PeerID
	seq        uint64 // of the last accepted frame
	lanes      [Channels]lane
	filled     uint16 // bit c of Channels: lane c is not empty
	turn       int    // lane that is asked first, ChannelControl aside
	pending    int    // Outbounds in lanes
	exposed    int    // of these, those whose source is still to be moved to Outbound.Spare
	unacked    frameQueue
	overdue    uint64 // sequence of the frame that was unacknowledged at the last reminder's turn
	reminded   uint64 // of the last one of which the peer was reminded
	frames     []*frame
	freeFrames *frame
	msg        van.Message
	inVan      uint64       // payload bytes that the van holds
	company    int          // pieces of long messages that are still cut for the sake of other channels
	window     uint64       // payload bytes that the peer lets be unreleased
	used       uint64       // what accepted messages on credited channels took of the window, ever
	freed      uint64       // of these, released by the peer
	hungry     bool         // the peer has been asked to report credit at once
	starved    bool         // it was asked before the last reminder's turn
	backlog    bool         // counted in Node.backlogs
	held       bool         // the handshake's answer must go before anything else
	withdrawn  []withdrawal // not completed
	detached   bool         // the peer can reach nothing any more

	withdrawals uint64        // begun, ever
	returned    atomic.Uint64 // of these, that are over
	goodbye     string
	parting     bool        // goodbye has been sent
	grace       *time.Timer // ends a session that parts; nil before

	// Told to the peer with every header; the first three under mu.
	received    uint64 // highest sequence received in order
	toldAck     uint64
	toldCredit  uint64
	knownCredit atomic.Uint64 // toldCredit at some time, for a look without mu
	released    atomic.Uint64 // what released messages gave back of the window, ever
	peerHungry  atomic.Bool   // the peer waits for credit
	due         atomic.Bool   // listed in Node.due
	dueSince    int64         // driver only
	unsaid      uint64        // messages of the peer since it was last told, at most; driver only

	// Receiving side; driver only.
	peerAck  uint64
	incoming [Channels]inboundQueue
	writing  [Channels]*Inbound // Inbound.Written, and not whole yet
	opened   bool
	greeted  int           // handlers that have accepted the session
	heirs    int           // of these, those that are to hear that it is detached
	charged  uint64        // what accepted messages took of the window that this side grants, ever
	patience *time.Timer   // until the handshake must be over; nil when it is
	visitors *visitors     // that s is among; nil when the peer is known
	visit    *list.Element // of visitors
	why      error         // of this side's refusal
	gone     bool          // lost: what the van had already reported is dropped
	refused  bool          // nothing of the peer is heard any more
	answered bool          // the dialler has sent something after the handshake
}

// Peer is who the peer said it is.
func (s *Session) Peer() Identity { return s.peer }

// Node is the node that the session belongs to.
func (s *Session) Node() *Transport { return s.node }

// Van is the name of the van that carries the session.
func (s *Session) Van() string { return s.caps.Name }

// Address is the peer's address, for people.
func (s *Session) Address() string { return s.ep.Peer() }

// SetUser attaches a value of the services above. Values must all have one type.
func (s *Session) SetUser(v any) { s.user.Store(v) }

// User returns the attached value, nil at first.
func (s *Session) User() any { return s.user.Load() }

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
		return s.lossError(stepvan.ErrClosed)
	default:
		return s.err
	}
}

// Close says goodbye after everything that was accepted, then ends the session.
// It returns at once; Handler.Lost tells the end. A peer that dialled, and has not answered the handshake
// within a second, gets no goodbye.
func (s *Session) Close(reason string) error {
	s.mu.Lock()
	s.shut(reason, s.held) // the peer may be silent for ever
	s.mu.Unlock()
	return nil
}

// BreakOff is Close for a peer that broke the protocol. The session ends within a second of the goodbye, or of the first
// call where the goodbye cannot be sent: what was accepted before may be lost. Any goroutine.
func (s *Session) BreakOff(reason string) {
	s.mu.Lock()
	s.shut(reason, true)
	if s.state == stateClosing && s.grace == nil { // it was closed before
		s.node.partAfter(s, stepvan.ErrClosed)
	}
	s.mu.Unlock()
}

// shut begins to close s. With limit it ends after a grace, whatever the peer does. mu is held.
func (s *Session) shut(reason string, limit bool) {
	switch s.state {
	case stateOpen:
		s.state, s.goodbye = stateClosing, reason
		if limit {
			s.node.partAfter(s, stepvan.ErrClosed)
		}
		s.pump()
	case stateHandshake:
		s.state = stateClosing
		s.node.partAfter(s, stepvan.ErrClosed)
	}
}

// Drop ends the session at once, without goodbye. Handler.Lost gets cause, unless the session has been lost for another
// reason that is still to be told. Any goroutine.
func (s *Session) Drop(cause error) { s.node.end(s, cause) }

// lossError names the peer and the van.
func (s *Session) lossError(cause error) error {
	return &stepvan.OpError{Op: "session", Van: s.caps.Name, Peer: s.String(), Err: cause}
}
