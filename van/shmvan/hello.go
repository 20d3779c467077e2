package shmvan

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/sys"
)

// hello is what each side says of itself before anything else, with two descriptors: its
// file (layout.go) and its van's page.
type hello struct {
	ring  uint64   // bytes of its ring
	pid   uint32   // as it sees itself
	nonce [16]byte // in its page
	slots uint32   // grants in its file; 0: it takes none
	at    uint64   // address of the nonce; 0: do not read my memory
}

const (
	helloMagic   = "stepvan\x00"
	helloVersion = 2
	helloBytes   = 64
	helloFDs     = 2
)

func (h *hello) encode() []byte {
	b := make([]byte, helloBytes)
	copy(b, helloMagic)
	le := binary.LittleEndian
	le.PutUint32(b[8:], helloVersion)
	le.PutUint32(b[12:], h.pid)
	le.PutUint64(b[16:], h.ring)
	le.PutUint64(b[24:], h.at)
	copy(b[32:], h.nonce[:])
	le.PutUint32(b[48:], h.slots)
	return b
}

func (h *hello) decode(b []byte) error {
	if len(b) != helloBytes || string(b[:8]) != helloMagic {
		return &stepvan.ProtocolError{Field: "hello", Reason: "what connected is not a stepvan peer"}
	}
	le := binary.LittleEndian
	if v := le.Uint32(b[8:]); v != helloVersion {
		return &stepvan.ProtocolError{Field: "hello", Offset: 8, Reason: fmt.Sprintf("the peer shares memory by version %d, this program by %d: run the same stepvan version on every node", v, helloVersion)}
	}
	h.pid, h.ring, h.at = le.Uint32(b[12:]), le.Uint64(b[16:]), le.Uint64(b[24:])
	copy(h.nonce[:], b[32:])
	h.slots = le.Uint32(b[48:])
	if h.ring < minRing || h.ring > maxRing || h.ring&(h.ring-1) != 0 {
		return &stepvan.ProtocolError{Field: "ring", Offset: 16, Reason: fmt.Sprintf("%d bytes", h.ring)}
	}
	if h.slots != 0 && (h.slots < minSlots || h.slots > maxSlots || h.slots&(h.slots-1) != 0) {
		return &stepvan.ProtocolError{Field: "slots", Offset: 48, Reason: fmt.Sprintf("%d grants", h.slots)}
	}
	return nil
}

// peer is the other process of a connection, as far as it has introduced itself.
type peer struct {
	hello hello
	file  *shm.Memory // its file and its van's page, for reading
	page  *shm.Memory
	identity
}

// newPeer takes the hello and the descriptors of a peer, and maps its files. It closes the descriptors, and keeps
// id. The caller closes the peer, also after an error.
func newPeer(b []byte, fds []int, id identity) (p *peer, err error) {
	p = &peer{identity: id}
	defer sys.CloseAll(fds)
	if err := p.hello.decode(b); err != nil {
		return p, err
	}
	if len(fds) != helloFDs {
		return p, &stepvan.ProtocolError{Field: "descriptors", Reason: fmt.Sprintf("%d came with the hello, %d belong to it", len(fds), helloFDs)}
	}
	if p.file, err = shm.MapReadOnly(fds[0], fileBytes(int(p.hello.ring), int(p.hello.slots))); err != nil {
		return p, peerError(err)
	}
	if p.page, err = shm.MapReadOnly(fds[1], pageBytes); err != nil {
		return p, peerError(err)
	}
	return p, nil
}

// peerError marks what only a broken or hostile peer does. The peer is not to blame for what this side lacks
// (descriptors, memory).
func peerError(err error) error {
	if errors.Is(err, stepvan.ErrInvalid) {
		return fmt.Errorf("%w (%w)", &stepvan.ProtocolError{Field: "file", Reason: err.Error()}, stepvan.ErrInvalid)
	}
	return err
}

// close releases everything of the peer. Nothing may use its memory any more.
func (p *peer) close() {
	if p.file != nil {
		_ = p.file.Close() // unmapping a mapping cannot fail
	}
	if p.page != nil {
		_ = p.page.Close()
	}
	p.identity.close()
}
