package rdma

import (
	"encoding/binary"
	"net/netip"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
)

// greeting is the private data of a connect request, of its answer and of a refusal:
//
//	| magic u32 | version u16 | path u8 | paths u8 | token u64 | what follows |
//
// Magic and version keep their place in every version to come. A hello follows in an answer. The transport fills what
// is left with zeros, so their length says nothing.
type greeting struct {
	path, paths int    // of how many paths of one connection this is which; 0 of 1
	token       uint64 // names the connection that a path belongs to, and in its low bits the attempt; 0 with one path
}

const (
	greetingMagic = 0x56525653 // "SVRV" in memory
	greetingBytes = 16
)

func (g *greeting) encode() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(make([]byte, 0, greetingBytes+helloBytes), greetingMagic)
	b = le.AppendUint16(b, wire.Version)
	b = append(b, byte(g.path), byte(g.paths))
	return le.AppendUint64(b, g.token)
}

// decode reads a greeting, and returns what follows it.
func (g *greeting) decode(b []byte) (rest []byte, err error) {
	le := binary.LittleEndian
	if len(b) < greetingBytes {
		return nil, errs.Protocol("private data", 0, "too short (got %d bytes, want %d)", len(b), greetingBytes)
	}
	if m := le.Uint32(b); m != greetingMagic {
		return nil, errs.Protocol("private data", 0, "%#08x is not a stepvan peer", m)
	}
	if v := le.Uint16(b[4:]); v != wire.Version {
		return nil, &wire.VersionError{Peer: v, Own: wire.Version}
	}
	g.path, g.paths, g.token = int(b[6]), int(b[7]), le.Uint64(b[8:])
	if g.paths < 1 || g.paths > maxPaths || g.path >= g.paths || (g.paths > 1) != (g.token != 0) {
		return nil, errs.Protocol("private data", 6, "path %d of %d (want 1 to %d) of connection %#x", g.path, g.paths, maxPaths, g.token)
	}
	return b[greetingBytes:], nil
}

// attemptBits of a token say which attempt to connect a path it is. So two queue pairs of one path are told apart.
const attemptBits = 16

// connection is the part of the token that all paths of a connection have.
func (g *greeting) connection() uint64 { return g.token &^ (1<<attemptBits - 1) }

// attempt is the other part.
func (g *greeting) attempt() uint16 { return uint16(g.token) }

// isFirst reports whether a connection begins. A further attempt to connect path 0 belongs to one that is there.
func (g *greeting) isFirst() bool { return g.path == 0 && g.attempt() == 0 }

// onlyZeros refuses bytes behind the end of private data.
func onlyZeros(b []byte) error {
	for i, c := range b {
		if c != 0 {
			return errs.Protocol("private data", i, "%d bytes too many", len(b)-i)
		}
	}
	return nil
}

// hello is what a side says of itself: what it can receive, and where it is told of credit. Its layout:
//
//	| slot u32 | messages u32 | records u32 | ring key u32 | word u64 | key u32 | device u16 | devices u16 |
//	| ring u64 |
type hello struct {
	slotBytes         int // of one slot
	messages, records int // slots that are posted
	word              uint64
	key               uint32 // of the word of credit
	ring              uint64 // of slots that messages are written to; 0 without
	ringKey           uint32
	device, devices   int // with several paths: which of its devices, of how many whose keys it tells; else 0
}

const helloBytes = 40

// maxDevices is of how many devices a side may tell keys, so that a grant fits into a slot.
const maxDevices = 64

func (h *hello) appendTo(b []byte) []byte {
	le := binary.LittleEndian
	for _, n := range []uint32{uint32(h.slotBytes), uint32(h.messages), uint32(h.records), h.ringKey} {
		b = le.AppendUint32(b, n)
	}
	b = le.AppendUint64(b, h.word)
	b = le.AppendUint32(b, h.key)
	b = le.AppendUint16(b, uint16(h.device))
	b = le.AppendUint16(b, uint16(h.devices))
	return le.AppendUint64(b, h.ring)
}

// decode reads a hello, behind which nothing follows.
func (h *hello) decode(b []byte) error {
	if err := h.read(b); err != nil {
		return err
	}
	return onlyZeros(b[helloBytes:])
}

// decodeAnswer reads the hello of an answer, and the ports that follow it.
func (h *hello) decodeAnswer(b []byte) (ports []netip.AddrPort, err error) {
	if err := h.read(b); err != nil {
		return nil, err
	}
	return readPorts(b[helloBytes:])
}

func (h *hello) read(b []byte) error {
	le := binary.LittleEndian
	if len(b) < helloBytes {
		return errs.Protocol("hello", 0, "too short (got %d bytes, want %d)", len(b), helloBytes)
	}
	h.slotBytes, h.messages, h.records = int(le.Uint32(b)), int(le.Uint32(b[4:])), int(le.Uint32(b[8:]))
	h.word, h.key = le.Uint64(b[16:]), le.Uint32(b[24:])
	h.ring, h.ringKey = le.Uint64(b[32:]), le.Uint32(b[12:])
	h.device, h.devices = int(le.Uint16(b[28:])), int(le.Uint16(b[30:]))
	switch {
	case h.slotBytes < 1<<10 || h.slotBytes > 64<<10:
		return errs.Protocol("hello", 0, "slots of %d bytes (want 1024 to 65536)", h.slotBytes)
	case h.messages < 4 || h.messages > 1<<10:
		return errs.Protocol("hello", 4, "%d slots for messages (want 4 to 1024)", h.messages)
	case h.records < recordSlots || h.records > 1<<10:
		return errs.Protocol("hello", 8, "%d slots for records (want %d to 1024)", h.records, recordSlots)
	case h.devices > maxDevices || h.device > max(0, h.devices-1):
		return errs.Protocol("hello", 28, "device %d of %d (want at most %d)", h.device, h.devices, maxDevices)
	case h.word%8 != 0:
		return errs.Protocol("hello", 16, "the word of credit is at %#x (want a multiple of 8)", h.word)
	}
	return nil
}
