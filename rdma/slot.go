package rdma

import (
	"encoding/binary"

	"github.com/stepvan/stepvan/internal/errs"
)

// prefix begins everything that is sent to a slot:
//
//	| kind u8 | flags u8 | count u16 | number u32 | messages u32 | records u32 |
//	| head u32 | fetched u32 | payload u64 |
//
// A message is one stream of bytes: its head, then what travels with it of its payload. Its first slot says how long
// both are (kindMessage). What does not fit follows in further slots (kindPart), without a gap.
type prefix struct {
	kind              kind
	flags             flags
	count             int    // entries between prefix and body
	number            uint32 // of the message slots of all rails, or of the records of this one, from 1
	messages, records uint32 // credit: the slots that the sender has posted again so far
	head              uint32 // kindMessage: bytes of head
	fetched           uint32 // payloads that the sender has fetched so far, or refused
	payload           uint64 // kindMessage: bytes of payload that travel with it
}

const prefixBytes = 32

// kind of a slot.
type kind uint8

const (
	kindHello   kind = 1 // the first of a connection; a record
	kindMessage kind = 2
	kindPart    kind = 3
	kindRecord  kind = 4 // of the van itself
	kindStripe  kind = 5 // it follows a part of the payload of a message; the head follows, over this rail or another
)

type flags uint8

const (
	flagWritten  flags = 1 << iota // kindMessage: the payload that does not travel with it is in granted memory
	flagWake                       // kindRecord: the sender waits for credit, and may sleep; it knows of so many messages (payload)
	flagCredit                     // kindRecord: it brings nothing but credit
	flagWithdraw                   // kindRecord: the sender withdraws the grants that follow
	flagAnswer                     // kindRecord: the sender writes no more to the grants that follow, which the peer has withdrawn
	flagFetch                      // kindMessage: the list of what is to be fetched travels with it, in place of the payload
	flagLoss                       // kindRecord: the sender has shut a rail; head says which path and attempt, and payload how many messages and records came over it
)

func (p *prefix) encode(b []byte) {
	le := binary.LittleEndian
	b[0], b[1] = byte(p.kind), byte(p.flags)
	le.PutUint16(b[2:], uint16(p.count))
	le.PutUint32(b[4:], p.number)
	le.PutUint32(b[8:], p.messages)
	le.PutUint32(b[12:], p.records)
	le.PutUint32(b[16:], p.head)
	le.PutUint32(b[20:], p.fetched)
	le.PutUint64(b[24:], p.payload)
}

func (p *prefix) decode(b []byte) error {
	if len(b) < prefixBytes {
		return errs.Protocol("slot", 0, "too short (got %d bytes, want at least %d)", len(b), prefixBytes)
	}
	le := binary.LittleEndian
	p.kind, p.flags, p.count = kind(b[0]), flags(b[1]), int(le.Uint16(b[2:]))
	p.number, p.messages, p.records = le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])
	p.head, p.fetched, p.payload = le.Uint32(b[16:]), le.Uint32(b[20:]), le.Uint64(b[24:])
	return nil
}

// isRecord reports whether the slot is one of the van itself, apart from messages.
func (p *prefix) isRecord() bool { return p.kind == kindHello || p.kind == kindRecord }
