package replay

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// The messages of rings and collectors. All numbers are little endian. All lengths are fixed, except for the text of a
// refusal. docs/replay.md has the same tables.

// messageMagic and messageVersion begin every message.
const (
	messageMagic   = 0x4C505252 // "RRPL"
	messageVersion = 1
)

// messageKind is what a message says.
type messageKind uint8

const (
	kindAsk     messageKind = 1 // ring to collector: pack these rows
	kindEnd     messageKind = 2 // ring to collector: the ring is closed
	kindPing    messageKind = 3 // either way: nothing; sending it fails when the other side is dead
	kindNote    messageKind = 4 // collector to ring, with a Put: these rows are whole
	kindRefusal messageKind = 5 // collector to ring: this share cannot be packed
	kindLeave   messageKind = 6 // collector to ring: the collector is closed
	kindJoin    messageKind = 7 // collector to ring: there is a collector; it undoes an earlier kindLeave
	kindOpen    messageKind = 8 // ring to collector: there is this ring
)

// picks says which generator picks the rows.
type picks uint8

const (
	picksTorch    picks = 1 // torch.randint(0, size, (count,)) with a generator of the CPU
	picksSplitMix picks = 2 // Pick
)

// Layout of the head of every message.
const (
	atVersion = 4
	atKind    = 5
	atPicks   = 6
	atDType   = 7
	atRing    = 8
	atTick    = 16
	atAttempt = 24
	headBytes = 32
)

// Layout of an ask behind its head.
const (
	atSeed   = 32
	atLeast  = 40
	atSlot   = 48
	atWidth  = 52
	atCount  = 56
	atFirst  = 64
	atRows   = 72
	atToken  = 80
	askBytes = 112
)

// Layout of a note behind its head.
const (
	atNoteSlot  = 32
	atNoteFirst = 40
	atNoteRows  = 48
	atWritten   = 56
	atHeld      = 64
	noteBytes   = 72
)

// maxRefusal bounds the text of a refusal.
const maxRefusal = 1024

// head is what every message has.
type head struct {
	kind    messageKind
	picks   picks        // of an ask; else 0
	dtype   tensor.DType // of an ask; else 0
	ring    uint64       // which one; random, so that a ring does not take what was meant for an earlier one
	tick    Tick
	attempt uint64 // of the ring to have a tick packed; they count up
}

// ask says what a collector has to pack.
type ask struct {
	head
	seed  uint64
	least uint64 // the rows that must have been written to the buffer
	slot  uint32
	width uint32 // columns
	count uint64 // rows of the whole batch
	first uint64 // of the share
	rows  uint64
	token peer.Token
}

// note says which rows are whole.
type note struct {
	head
	slot          uint32
	first, rows   uint64
	written, held uint64 // of the buffer when they were picked
}

func (h *head) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, messageMagic)
	b = append(b, messageVersion, byte(h.kind), byte(h.picks), byte(h.dtype))
	b = binary.LittleEndian.AppendUint64(b, h.ring)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.tick))
	return binary.LittleEndian.AppendUint64(b, h.attempt)
}

// parseHead reads the head of a message.
func parseHead(b []byte) (h head, err error) {
	if len(b) < headBytes || binary.LittleEndian.Uint32(b) != messageMagic {
		return h, errs.Protocol("magic", 0, "%d bytes are not a message of a ring", len(b))
	}
	if b[atVersion] != messageVersion {
		return h, errs.Protocol("version", atVersion, "version %d, want %d", b[atVersion], messageVersion)
	}
	h = head{
		kind: messageKind(b[atKind]), picks: picks(b[atPicks]), dtype: tensor.DType(b[atDType]),
		ring: binary.LittleEndian.Uint64(b[atRing:]), tick: Tick(binary.LittleEndian.Uint64(b[atTick:])),
		attempt: binary.LittleEndian.Uint64(b[atAttempt:]),
	}
	return h, nil
}

func (a *ask) append(b []byte) []byte {
	b = a.head.append(b)
	b = binary.LittleEndian.AppendUint64(b, a.seed)
	b = binary.LittleEndian.AppendUint64(b, a.least)
	b = binary.LittleEndian.AppendUint32(b, a.slot)
	b = binary.LittleEndian.AppendUint32(b, a.width)
	b = binary.LittleEndian.AppendUint64(b, a.count)
	b = binary.LittleEndian.AppendUint64(b, a.first)
	b = binary.LittleEndian.AppendUint64(b, a.rows)
	return append(b, a.token[:]...)
}

// parseAsk reads an ask whose head was read. The rows of its share are rows of the batch.
func parseAsk(h head, b []byte) (a ask, err error) {
	if len(b) != askBytes {
		return a, errs.Protocol("length", 0, "an ask of %d bytes, want %d", len(b), askBytes)
	}
	a = ask{
		head: h, seed: binary.LittleEndian.Uint64(b[atSeed:]), least: binary.LittleEndian.Uint64(b[atLeast:]),
		slot: binary.LittleEndian.Uint32(b[atSlot:]), width: binary.LittleEndian.Uint32(b[atWidth:]),
		count: binary.LittleEndian.Uint64(b[atCount:]), first: binary.LittleEndian.Uint64(b[atFirst:]), rows: binary.LittleEndian.Uint64(b[atRows:]),
	}
	copy(a.token[:], b[atToken:])
	if a.count > maxRows || a.rows == 0 || a.first > a.count || a.rows > a.count-a.first {
		return a, errs.Protocol("rows", atFirst, "%d rows from row %d on of a batch of %d", a.rows, a.first, a.count)
	}
	if a.width == 0 || a.width > math.MaxInt32 {
		return a, errs.Protocol("width", atWidth, "rows of %d columns", a.width)
	}
	return a, nil
}

func (n *note) append(b []byte) []byte {
	b = n.head.append(b)
	b = binary.LittleEndian.AppendUint32(b, n.slot)
	b = binary.LittleEndian.AppendUint32(b, 0)
	for _, x := range []uint64{n.first, n.rows, n.written, n.held} {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

// parseNote reads a note whose head was read.
func parseNote(h head, b []byte) (n note, err error) {
	if len(b) != noteBytes {
		return n, errs.Protocol("length", 0, "a note of %d bytes, want %d", len(b), noteBytes)
	}
	return note{
		head: h, slot: binary.LittleEndian.Uint32(b[atNoteSlot:]),
		first: binary.LittleEndian.Uint64(b[atNoteFirst:]), rows: binary.LittleEndian.Uint64(b[atNoteRows:]),
		written: binary.LittleEndian.Uint64(b[atWritten:]), held: binary.LittleEndian.Uint64(b[atHeld:]),
	}, nil
}

// appendRefusal appends a refusal, with at most maxRefusal bytes of its text.
func appendRefusal(b []byte, h head, text string) []byte {
	h.kind, h.picks, h.dtype = kindRefusal, 0, 0
	return append(h.append(b), text[:min(len(text), maxRefusal)]...)
}

// refusalText is the text of a refusal.
func refusalText(b []byte) string {
	text := b[headBytes:min(len(b), headBytes+maxRefusal)]
	if !utf8.Valid(text) || len(text) == 0 {
		return "it gives no reason"
	}
	return string(text)
}

// topicOf names the mail of a ring: to its collectors, and to the ring itself.
func topicOf(name string, toRing bool) peer.Topic {
	if toRing {
		return peer.Topic("replay/" + name + "/ring")
	}
	return peer.Topic("replay/" + name + "/collector")
}

// maxName bounds the name of a ring, so that its topics are not too long.
const maxName = 64

func checkName(op, name string) error {
	if name == "" || len(name) > maxName {
		return errs.Invalid("%s: name: its length is out of range (got %d, want 1 to %d bytes): give the ring a name", op, len(name), maxName)
	}
	return nil
}
