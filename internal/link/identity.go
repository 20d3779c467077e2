package link

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

// Identity is what a transport says of itself when a session opens.
type Identity struct {
	ID          wire.PeerID // 0 before the scheduler has given one
	Incarnation uint32      // which life of the instance
	Name        string      // for people: "worker 3"
	Reason      string      // of the side that dialled, for people: why it took this address (Options.Reason)
	Info        []byte      // for the services above; opaque here
}

const (
	identityFixed  = 20
	maxNameBytes   = 256
	maxReasonBytes = 512
)

// appendIdentity encodes id and the credit that this side gives the peer.
func appendIdentity(b []byte, id Identity, credit uint64) []byte {
	le := binary.LittleEndian
	name := id.Name[:min(len(id.Name), maxNameBytes)]
	reason := id.Reason[:min(len(id.Reason), maxReasonBytes)]
	b = le.AppendUint32(b, uint32(id.ID))
	b = le.AppendUint32(b, id.Incarnation)
	b = le.AppendUint64(b, credit)
	b = le.AppendUint16(b, uint16(len(name)))
	b = le.AppendUint16(b, uint16(len(reason)))
	b = append(b, name...)
	b = append(b, reason...)
	return append(b, id.Info...)
}

func decodeIdentity(b []byte) (id Identity, credit uint64, err error) {
	if len(b) < identityFixed {
		return id, 0, &stepvan.ProtocolError{Field: "identity", Reason: fmt.Sprintf("cut off: %d of %d bytes", len(b), identityFixed)}
	}
	le := binary.LittleEndian
	id.ID = wire.PeerID(le.Uint32(b))
	id.Incarnation = le.Uint32(b[4:])
	credit = le.Uint64(b[8:])
	n, m := int(le.Uint16(b[16:])), int(le.Uint16(b[18:]))
	rest := b[identityFixed:]
	if n > maxNameBytes || n > len(rest) {
		return id, 0, &stepvan.ProtocolError{Field: "name", Offset: 16, Reason: fmt.Sprintf("%d bytes, %d follow, limit %d", n, len(rest), maxNameBytes)}
	}
	id.Name, rest = printable(rest[:n]), rest[n:]
	if m > maxReasonBytes || m > len(rest) {
		return id, 0, &stepvan.ProtocolError{Field: "reason", Offset: 18, Reason: fmt.Sprintf("%d bytes, %d follow, limit %d", m, len(rest), maxReasonBytes)}
	}
	id.Reason = printable(rest[:m])
	id.Info = append([]byte(nil), rest[m:]...)
	return id, credit, nil
}

// printable makes a peer's text safe for logs and terminals.
func printable(b []byte) string {
	q := strconv.QuoteToASCII(string(b))
	return q[1 : len(q)-1]
}
