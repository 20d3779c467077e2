package van

import (
	"context"

	"github.com/stepvan/stepvan/internal/wire"
)

// Caps are what a van can do and how much, as data.
type Caps struct {
	Name        string // "tcp", "mem"
	MaxMeta     int    // bytes of meta in one message
	MaxPayload  int64  // bytes of payload in one message
	MaxSegments int    // segments in one payload
	InMessage   int64  // whole messages with at most so much payload may come with Delivery.Payload
	OneSided    bool   // endpoints implement Granter: the van writes payload into grants of the peer
	Views       bool   // with OneSided: endpoints implement Viewer: this process can also map and see grants of the peer
	// Offload vans are one-sided vans with a device that moves the payload: Send only posts it. A message with Target
	// may have segments whose Target is zero. They travel with the head, all of them together within InMessage.
	Offload bool
	// Registered one-sided vans are Registrars: memory that is granted, and the source of a segment with a Target, must
	// be registered.
	Registered bool
	// Guarded one-sided vans hold a peer that keeps no rule to its grants as well, by what this side enforces. Without
	// it, such a peer reaches more than it was granted: the documentation of the package says what.
	Guarded bool
	// Quiet vans make no system call in Poll while nothing comes. Their FD is hardly ever readable while they are not
	// armed.
	Quiet bool
	// Sound vans cannot corrupt bytes. Headers may go without checksum (wire.Header.EncodeUnsummed), and the receiver
	// checks none.
	Sound bool
	Lossy bool // connections may be lost at random (fault injection)
}

// OpID is the caller's name for an operation; the van hands it back in the completion.
type OpID uint64

// Van makes and polls the endpoints of one transport in one node.
type Van interface {
	// Caps may be called concurrently, and answers the same always.
	Caps() Caps

	// Listen starts to accept peers at addr, in the van's own notation, and returns the address that a peer must dial.
	// Accepted endpoints arrive as EventAccepted. It may be called several times, concurrently.
	Listen(addr string) (bound string, err error)

	// Dial connects to addr. While nobody listens there it tries again, with growing pauses, until ctx ends. A name
	// that cannot be resolved, or an address that cannot be parsed, fails at once. It may be called concurrently with
	// everything, and needs nobody to call Poll.
	Dial(ctx context.Context, addr string) (Endpoint, error)

	// Poll moves everything that can move without blocking, writes what happened into events, and returns how many
	// events there are. One caller at a time. When all is false it may look only at endpoints that were active lately,
	// which is cheaper. When all is true it misses nothing.
	Poll(events []Event, all bool) int

	// Arm prepares for sleep. Only the caller of Poll may call it. After true, and until the next Poll, FD is readable
	// while Poll(events, true) would find something, whether it is there already or comes later. A van without FD has
	// nothing at this moment, and calls the wake function once for the next thing. A message with More and Done may
	// show only together with one that follows it. After false, FD may not show everything: the caller polls again.
	//
	// A van that is not armed need not announce what has come. A peer, a Send or a Release therefore makes a system
	// call only to wake a sleeper.
	Arm() bool

	// FD is a descriptor that becomes readable while the van is armed. It is -1 when the van calls the wake function of
	// its options instead. The descriptor belongs to the van and lives until Close.
	FD() int

	// Close closes all endpoints and listeners. Idempotent, concurrent. Completions can still be polled afterwards.
	Close() error
}

// Endpoint is one side of a connection.
type Endpoint interface {
	// Send offers one message. After nil exactly one EventCompletion with m.Op follows, unless Send has set m.Done.
	// After an error nothing has happened. Send never blocks. When it returns, m and its outer slices belong to the
	// caller again. One caller at a time per endpoint, concurrent with Poll and Close. Errors:
	//
	//   - stepvan.ErrWouldBlock: the queue is full.
	//   - stepvan.ErrInvalid: the message exceeds Caps.
	//   - stepvan.ErrStale: a target is known to be withdrawn. A van that learns it later fails the completion with it.
	//   - stepvan.ErrNotSupported: a segment with a Target is in memory that is not registered (Caps.Registered).
	//   - stepvan.ErrClosed or stepvan.ErrPeerLost: the connection has ended.
	Send(m *Message) error

	// SetUser attaches the caller's value to the endpoint, User returns it (nil at first). SetUser happens before the
	// events that follow it are read.
	SetUser(v any)
	User() any

	// Peer names the other side, for people: "10.0.0.7:4711".
	Peer() string

	// Close ends the connection. Idempotent, concurrent. Accepted operations complete, in error if need be.
	Close() error
}

// Message is one message to send.
type Message struct {
	Op      OpID
	Head    []byte   // encoded header (wire.HeaderSize bytes) and its meta
	Payload [][]byte // segments, in order; together Header.Payload bytes
	// Target says over one-sided vans where the segments go at the peer, one per segment. It is empty for the peer's
	// Placer. With Caps.Offload some may be zero.
	Target []Target
	// Spare, when it is set, is memory that can hold the whole payload and does not overlap it. The segments of Payload
	// then belong to the caller again when Send returns. The van copies what it still needs of them to Spare, which
	// belongs to the van until the completion. Not together with Target.
	Spare []byte
	// Written is, over vans with Caps.Views, the size of a payload that the sender has written through Views
	// (Viewer.Map). The head announces it in Header.Payload. The fields Payload, Target and Spare are empty. The
	// message is delivered like one with Target.
	Written int64
	// Done is false when Send is called. Send may set it: the operation is complete, and no event follows.
	Done bool
	// More says that the next piece of a larger message follows when this one is complete. It is a hint: an event then
	// does as well as Done, and keeps the sender from overtaking other messages. With Done the caller sends another
	// message as soon as the van takes it, or the connection ends. So a peer that sleeps need not be woken for this
	// one, unless its header tells more of acknowledgement or credit than the one before.
	More bool
}

// EventKind says what happened.
type EventKind uint8

// Kinds of event.
const (
	EventMessage    EventKind = 1 // Delivery is set
	EventCompletion EventKind = 2 // Op, and Err when the operation failed
	EventAccepted   EventKind = 3 // a peer connected to a listener
	EventLost       EventKind = 4 // the peer is gone; Err says why
	EventDetached   EventKind = 5 // one-sided vans: the peer cannot reach granted memory any more; the endpoint's last event
)

// Event is one thing that happened at an endpoint.
type Event struct {
	Kind     EventKind
	Endpoint Endpoint
	Op       OpID
	Err      error
	Delivery *Delivery
}

// Delivery is a message that has arrived whole.
type Delivery struct {
	Header wire.Header
	Meta   []byte // valid until Release
	// Refused is the Placer's error when it refused the payload. The van has then read the payload and dropped it.
	Refused error
	// Written says that the peer has written the payload into memory granted to it: its van, where the sender's
	// Message.Target named it, or the sender itself (Message.Written). The van has not asked the Placer. What the meta
	// says of the place is the peer's claim. With Caps.Offload, Payload then has the segments whose Target is zero, in
	// order, and the peer has written the others. All may have travelled so.
	Written bool
	// Payload is the payload of a small whole message (Caps.InMessage), or what has travelled with the head. The van
	// has kept it beside the meta and has not asked the Placer. Valid until Release.
	Payload []byte
	// Releaser gives the delivery back to its van.
	Releaser Releaser
}

// Releaser takes a delivery back. Vans implement it.
type Releaser interface{ ReleaseDelivery(*Delivery) }

// Release ends the caller's use of the delivery and gives its credit back. Exactly once, from any goroutine.
func (d *Delivery) Release() { d.Releaser.ReleaseDelivery(d) }

// Placer names the memory for a payload. The van calls it from inside Poll, once per message with payload. It has then
// read the header and the meta, and not the payload.
type Placer interface {
	// Place appends to dst the segments that receive the payload, together exactly h.Payload bytes, and returns dst.
	// The memory must stay valid until the message is delivered, or the endpoint is lost or closed. An error refuses
	// the payload: the van reads and drops it, and delivers the message with Refused set. A *stepvan.ProtocolError ends
	// the connection. h and meta are valid during the call only. Place must not block.
	Place(ep Endpoint, h *wire.Header, meta []byte, dst [][]byte) ([][]byte, error)
}
