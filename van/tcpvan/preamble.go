package tcpvan

import (
	"encoding/binary"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
)

// preamble opens every dialed connection:
//
//	| magic u32 | version u16 | index u8 | count u8 | threshold u32 | zero u32 | nonce 16 bytes |
//
// Magic and version keep their place in every version to come.
type preamble struct {
	index     int   // of this rail
	count     int   // rails of the endpoint
	threshold int   // bytes of payload from which it is cut over the rails
	nonce     nonce // names the endpoint among all that the listener pairs; zero when count is 1
}

// nonce is random, so that nobody can slip a rail under somebody else's endpoint.
type nonce [16]byte

const (
	preambleMagic = 0x4E565352 // "RSVN" in memory; its first byte differs from that of a wire header
	preambleSize  = 32
	maxThreshold  = 1 << 30
)

func (p *preamble) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, preambleSize)
	b = le.AppendUint32(b, preambleMagic)
	b = le.AppendUint16(b, wire.Version)
	b = append(b, byte(p.index), byte(p.count))
	b = le.AppendUint32(b, uint32(p.threshold))
	b = le.AppendUint32(b, 0)
	return append(b, p.nonce[:]...)
}

// decode reads and checks a preamble of preambleSize bytes.
func (p *preamble) decode(b []byte) error {
	le := binary.LittleEndian
	if m := le.Uint32(b); m != preambleMagic {
		return errs.Protocol("preamble magic", 0, "%#08x is not a stepvan peer", m)
	}
	if v := le.Uint16(b[4:]); v != wire.Version {
		return &wire.VersionError{Peer: v, Own: wire.Version}
	}
	p.index, p.count = int(b[6]), int(b[7])
	threshold := le.Uint32(b[8:])
	switch {
	case p.count < 1 || p.count > MaxRails:
		return errs.Protocol("preamble count", 7, "%d rails, 1 to %d are possible", p.count, MaxRails)
	case p.index >= p.count:
		return errs.Protocol("preamble index", 6, "rail %d of %d", p.index, p.count)
	case threshold < 1 || threshold > maxThreshold:
		return errs.Protocol("preamble threshold", 8, "%d bytes, 1 to %d are possible", threshold, maxThreshold)
	case le.Uint32(b[12:]) != 0:
		return errs.Protocol("preamble reserved", 12, "not zero")
	}
	p.threshold = int(threshold)
	copy(p.nonce[:], b[16:])
	return nil
}

// startsWith reports whether b, the first bytes of a connection, may grow into what begins with magic.
func startsWith(b []byte, magic uint32) bool {
	var first [4]byte
	binary.LittleEndian.PutUint32(first[:], magic)
	n := min(len(b), 4)
	return string(b[:n]) == string(first[:n])
}
