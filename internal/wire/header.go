package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/stepvan/stepvan"
)

// Sizes and identity of the header.
const (
	Magic      = 0x4E415653 // "SVAN" in memory
	Version    = 2          // of all that peers must agree on, also of what a field may hold
	HeaderSize = 128
)

// PeerID names an instance of a cluster. The scheduler gives it; 0 is "not yet known".
type PeerID uint32

// Channel names a service of a session. The link keeps the order of messages within a channel only.
type Channel uint16

// Kind says what the link does with a message.
type Kind uint8

// Kinds of message.
const (
	KindHello   Kind = 1 // dialer introduces itself; meta holds its identity
	KindWelcome Kind = 2 // listener accepts; meta holds its identity
	KindRefuse  Kind = 3 // listener refuses; meta holds the reason as text
	KindData    Kind = 4 // a message, or a piece of one, of a channel
	KindAck     Kind = 5 // only carries Ack and Credit
	KindGoodbye Kind = 6 // the sender leaves on purpose; meta holds the reason as text
	kindEnd     Kind = 7
)

// Flags of a message.
type Flags uint16

// Flag bits.
const (
	// FlagAckNow asks the receiver to acknowledge at once instead of with its next message.
	FlagAckNow Flags = 1 << iota
	// FlagTrace says that the meta ends with the server's four timestamps.
	FlagTrace
	// FlagError says that the message answers a request with an error: the meta holds its text.
	FlagError
)

// Header is the fixed part of every message. Field order here is the order on the wire.
type Header struct {
	Kind        Kind    // what the link does with it
	Op          uint8   // what the channel's service does with it
	Flags       Flags   //
	Channel     Channel // service
	Source      PeerID  // sending instance
	Destination PeerID  // receiving instance
	Incarnation uint32  // which life of the sending instance
	Epoch       uint64  // membership view of the sender
	// Sequence is the position in the session, from 1; 0 for messages outside the sequence. A KindAck has the position
	// of the last message before it, or 0.
	Sequence   uint64
	Ack        uint64 // highest sequence received in order by the sender
	Credit     uint64 // what the sender has released of its window since the session began, bytes
	Request    uint64 // request id, chosen by the requester
	Generation uint32 // registration generation that the request was prepared under
	Pushes     uint32 // push descriptors in the meta
	Pulls      uint32 // pull descriptors in the meta
	Meta       uint32 // bytes of meta that follow the header
	Payload    uint64 // bytes of payload in this message
	Total      uint64 // bytes of payload of the whole message, all pieces together
	Offset     uint64 // where this piece begins in the whole
}

// Byte offsets of the fields. Tests hold them to the struct and to golden bytes.
const (
	offMagic       = 0
	offVersion     = 4
	offKind        = 6
	offOp          = 7
	offFlags       = 8
	offChannel     = 10
	offSource      = 12
	offDestination = 16
	offIncarnation = 20
	offEpoch       = 24
	offSequence    = 32
	offAck         = 40
	offCredit      = 48
	offRequest     = 56
	offGeneration  = 64
	offPushes      = 68
	offPulls       = 72
	offMeta        = 76
	offPayload     = 80
	offTotal       = 88
	offOffset      = 96
	offReserved    = 104 // 16 bytes, zero
	offChecksum    = 120
)

// Limits bound what a peer may announce.
type Limits struct {
	Meta    uint32 // bytes of meta
	Message uint64 // bytes of payload of a whole message
	Tensors uint32 // push descriptors, and pull descriptors
}

// DefaultLimits are used where settings say nothing.
var DefaultLimits = Limits{Meta: 1 << 20, Message: 64 << 30, Tensors: 4096}

// VersionError is what both sides get when their versions differ.
type VersionError struct{ Peer, Own uint16 }

// Error names both versions, and says what to do.
func (e *VersionError) Error() string {
	return fmt.Sprintf("peer speaks wire version %d, this program speaks %d: run the same stepvan version on every node", e.Peer, e.Own)
}

// TotalOf returns Total of the header that head begins with.
func TotalOf(head []byte) int64 { return int64(binary.LittleEndian.Uint64(head[offTotal:])) }

// RestOf returns how much payload of the whole message follows the piece that head begins with.
func RestOf(head []byte) int64 {
	le := binary.LittleEndian
	return int64(le.Uint64(head[offTotal:]) - le.Uint64(head[offOffset:]) - le.Uint64(head[offPayload:]))
}

// ReportsOf returns Ack and Credit of the header that head begins with.
func ReportsOf(head []byte) (ack, credit uint64) {
	le := binary.LittleEndian
	return le.Uint64(head[offAck:]), le.Uint64(head[offCredit:])
}

// Encode writes h and its checksum over h and meta into b[:HeaderSize]. The bytes of meta must be those that follow the
// header. Encode sets h.Meta to their number.
func (h *Header) Encode(b []byte, meta []byte) {
	h.EncodeUnsummed(b, len(meta))
	binary.LittleEndian.PutUint64(b[offChecksum:], checksum(b[:offChecksum], meta))
}

// EncodeUnsummed is Encode with 0 for the checksum, for receivers that do not Verify. The sum is half the cost of a
// small message, and useless where memory carries the message.
func (h *Header) EncodeUnsummed(b []byte, meta int) {
	_ = b[HeaderSize-1]
	le := binary.LittleEndian
	h.Meta = uint32(meta)
	le.PutUint32(b[offMagic:], Magic)
	le.PutUint16(b[offVersion:], Version)
	b[offKind] = byte(h.Kind)
	b[offOp] = h.Op
	le.PutUint16(b[offFlags:], uint16(h.Flags))
	le.PutUint16(b[offChannel:], uint16(h.Channel))
	le.PutUint32(b[offSource:], uint32(h.Source))
	le.PutUint32(b[offDestination:], uint32(h.Destination))
	le.PutUint32(b[offIncarnation:], h.Incarnation)
	le.PutUint64(b[offEpoch:], h.Epoch)
	le.PutUint64(b[offSequence:], h.Sequence)
	le.PutUint64(b[offAck:], h.Ack)
	le.PutUint64(b[offCredit:], h.Credit)
	le.PutUint64(b[offRequest:], h.Request)
	le.PutUint32(b[offGeneration:], h.Generation)
	le.PutUint32(b[offPushes:], h.Pushes)
	le.PutUint32(b[offPulls:], h.Pulls)
	le.PutUint32(b[offMeta:], h.Meta)
	le.PutUint64(b[offPayload:], h.Payload)
	le.PutUint64(b[offTotal:], h.Total)
	le.PutUint64(b[offOffset:], h.Offset)
	le.PutUint64(b[offReserved:], 0)
	le.PutUint64(b[offReserved+8:], 0)
	le.PutUint64(b[offChecksum:], 0)
}

// Decode reads the header at the start of b and checks everything except the checksum, which needs the meta ([Verify]).
// After an error the rest of the stream cannot be trusted.
func (h *Header) Decode(b []byte, lim Limits) error {
	if len(b) < HeaderSize {
		return bad("header", len(b), "cut off: %d of %d bytes", len(b), HeaderSize)
	}
	le := binary.LittleEndian
	if m := le.Uint32(b[offMagic:]); m != Magic {
		return bad("magic", offMagic, "%#08x is not a stepvan peer", m)
	}
	if v := le.Uint16(b[offVersion:]); v != Version {
		return &VersionError{Peer: v, Own: Version}
	}
	h.Kind = Kind(b[offKind])
	h.Op = b[offOp]
	h.Flags = Flags(le.Uint16(b[offFlags:]))
	h.Channel = Channel(le.Uint16(b[offChannel:]))
	h.Source = PeerID(le.Uint32(b[offSource:]))
	h.Destination = PeerID(le.Uint32(b[offDestination:]))
	h.Incarnation = le.Uint32(b[offIncarnation:])
	h.Epoch = le.Uint64(b[offEpoch:])
	h.Sequence = le.Uint64(b[offSequence:])
	h.Ack = le.Uint64(b[offAck:])
	h.Credit = le.Uint64(b[offCredit:])
	h.Request = le.Uint64(b[offRequest:])
	h.Generation = le.Uint32(b[offGeneration:])
	h.Pushes = le.Uint32(b[offPushes:])
	h.Pulls = le.Uint32(b[offPulls:])
	h.Meta = le.Uint32(b[offMeta:])
	h.Payload = le.Uint64(b[offPayload:])
	h.Total = le.Uint64(b[offTotal:])
	h.Offset = le.Uint64(b[offOffset:])
	return h.check(lim)
}

// Verify compares the checksum in the encoded header with header and meta.
func Verify(header, meta []byte) error {
	want := binary.LittleEndian.Uint64(header[offChecksum:])
	if got := checksum(header[:offChecksum], meta); got != want {
		return bad("checksum", offChecksum, "%#016x, computed %#016x", want, got)
	}
	return nil
}

func (h *Header) check(lim Limits) error {
	switch {
	case h.Kind == 0 || h.Kind >= kindEnd:
		return bad("kind", offKind, "unknown kind %d", h.Kind)
	case h.Meta > lim.Meta:
		return bad("meta", offMeta, "%d bytes, limit %d", h.Meta, lim.Meta)
	case h.Pushes > lim.Tensors:
		return bad("pushes", offPushes, "%d tensors, limit %d", h.Pushes, lim.Tensors)
	case h.Pulls > lim.Tensors:
		return bad("pulls", offPulls, "%d tensors, limit %d", h.Pulls, lim.Tensors)
	case h.Total > lim.Message:
		return bad("total", offTotal, "%d bytes, limit %d", h.Total, lim.Message)
	case h.Payload > h.Total:
		return bad("payload", offPayload, "%d bytes of a message of %d", h.Payload, h.Total)
	case h.Offset > h.Total-h.Payload:
		return bad("offset", offOffset, "piece [%d,+%d) outside a message of %d", h.Offset, h.Payload, h.Total)
	}
	return nil
}

func checksum(header, meta []byte) uint64 {
	// Two one-shot sums are several times faster than a streaming digest for these lengths.
	sum := xxhash.Sum64(header)
	if len(meta) > 0 {
		sum = sum*0x9E3779B185EBCA87 ^ xxhash.Sum64(meta)
	}
	return sum
}

func bad(field string, offset int, format string, args ...any) error {
	return &stepvan.ProtocolError{Field: field, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}
