package link

import (
	"errors"

	"github.com/stepvan/stepvan/internal/wire"
)

// Channels of a session, in order of precedence when several have something to send.
const (
	ChannelControl  wire.Channel = iota // postoffice
	ChannelRegister                     // server to worker: registrations
	ChannelRequest                      // worker to server, in order of issue
	ChannelResponse                     // server to worker, small
	ChannelBulk                         // server to worker, large
	channelsOfPS

	// Channels is how many channels a session has; services to come take theirs from channelsOfPS on.
	Channels = 16
)

// credited reports whether payload on c counts against the sender's credit.
// Control traffic does not: it must pass when data may not.
func credited(c wire.Channel) bool { return c > ChannelRegister }

// ErrLeft is the reason of a loss that the peer announced: it left on purpose.
var ErrLeft = errors.New("stepvan: peer left")

// Handler serves one channel of a node. The node's driver makes all calls, one
// at a time. They must not block or wait; they may send.
type Handler interface {
	// Opened reports a session before any message of it. An error refuses it, and is told to the peer.
	Opened(s *Session) error
	// Place appends to dst where the payload of m goes, together m.Header.Total
	// bytes, and returns it. Appending nothing leaves it to the link, which
	// takes pooled memory (m.Data). An error refuses the payload, which is
	// dropped, and m is delivered with Refused set; a *stepvan.ProtocolError costs the peer its session. Not called for
	// messages without payload, nor for those with Inbound.Written.
	Place(m *Inbound, dst [][]byte) ([][]byte, error)
	// Deliver hands over a message that is whole. Its receiver calls m.Release, then or later.
	Deliver(m *Inbound)
	// Abort comes in place of Deliver when the session is lost after Place, also
	// when Place itself ended it.
	// The link releases m afterwards.
	Abort(m *Inbound, err error)
	// Lost ends a session, after everything else of it. The error wraps ErrLeft
	// when the peer said goodbye, stepvan.ErrClosed when this side closed, else stepvan.ErrPeerLost.
	Lost(s *Session, err error)
}

// Receiver is a Handler that takes small messages in one call.
type Receiver interface {
	// Receive comes in place of Place and Deliver for a whole message whose payload the van has kept. meta, in place of
	// m.Meta, and payload are valid until it returns. The link releases m then, unless it is kept: for Release, later.
	Receive(m *Inbound, meta, payload []byte) (kept bool)
}

// Detacher is a Handler that grants memory to peers.
type Detacher interface {
	// Detached comes once for each session that was Opened, after Lost: the peer cannot reach any memory
	// that was granted to it on s. It comes at once when the van is not one-sided, and as
	// late as a live peer lets go otherwise; not at all when the node is closed before that.
	Detached(s *Session)
}

// BaseHandler implements what a Handler may leave out: everything but Deliver.
type BaseHandler struct{}

// Opened accepts.
func (BaseHandler) Opened(*Session) error { return nil }

// Place leaves it to the link.
func (BaseHandler) Place(_ *Inbound, dst [][]byte) ([][]byte, error) { return dst, nil }

// Abort does nothing.
func (BaseHandler) Abort(*Inbound, error) {}

// Lost does nothing.
func (BaseHandler) Lost(*Session, error) {}
