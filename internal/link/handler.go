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
	ChannelPeer                         // between peers, small
	ChannelPeerBulk                     // between peers, large
	channelsUsed

	// Channels is how many channels a session has; further services take theirs from channelsUsed on.
	Channels = 16
)

// credited reports whether payload on c counts against the sender's credit. Control traffic does not: it must pass when
// data may not.
func credited(c wire.Channel) bool { return c > ChannelRegister }

// ErrNeedless is what [Handler.Opened] wraps to refuse a session that is not needed. There is another with the peer,
// or this side opens it. The log does not warn of that.
var ErrNeedless = errors.New("stepvan: one session is enough")

// ErrLeft is the reason of a loss that the peer announced: it left on purpose.
var ErrLeft = errors.New("stepvan: peer left")

// Handler serves one channel of a transport. The driver makes all calls, one at a time. A call must not block or wait.
// It may send.
type Handler interface {
	// Opened reports a session before any message of it. An error refuses the session, and the peer gets its text.
	Opened(s *Session) error
	// Place appends to dst where the payload of m goes, together m.Header.Total bytes, and returns dst. Only payload
	// that the van is about to read is placed: none that the van has kept or the peer has written. If Place appends
	// nothing, the link takes pooled memory, which Receive finds in m.Payload. An error refuses the payload: it is
	// dropped, and m is received with Refused set. A *stepvan.ProtocolError ends the session.
	Place(m *Inbound, dst [][]byte) ([][]byte, error)
	// Receive hands over a message that is whole. m.Meta and m.Payload are valid until it returns. The link releases m
	// then. When Receive returns true, the handler calls m.Release later instead.
	Receive(m *Inbound) (kept bool)
	// Abort replaces Receive when the session is lost after Place, also when Place itself ended it. The link releases m
	// afterwards.
	Abort(m *Inbound, err error)
	// Lost ends a session, after everything else of it. The error wraps ErrLeft when the peer said goodbye,
	// stepvan.ErrClosed when this side closed, else stepvan.ErrPeerLost.
	Lost(s *Session, err error)
}

// Detacher is a Handler that grants memory to peers.
type Detacher interface {
	// Detached is called once for each session that was Opened, after Lost: the peer cannot reach any memory that was
	// granted to it on s. It follows Lost at once when the van is not one-sided. Otherwise it comes when the peer has
	// given up its views. It does not come when the transport is closed before that.
	Detached(s *Session)
}

// BaseHandler implements the methods that a Handler may leave out: all except Receive.
type BaseHandler struct{}

// Opened accepts.
func (BaseHandler) Opened(*Session) error { return nil }

// Place leaves the placement to the link.
func (BaseHandler) Place(_ *Inbound, dst [][]byte) ([][]byte, error) { return dst, nil }

// Abort does nothing.
func (BaseHandler) Abort(*Inbound, error) {}

// Lost does nothing.
func (BaseHandler) Lost(*Session, error) {}
