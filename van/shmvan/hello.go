package shmvan

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/sys"
)

// hello is what each side says of itself before anything else, with two descriptors: its
// file (layout.go) and its van's page. It lies in the message as it does here, little-endian.
type hello struct {
	Magic   [8]byte
	Version uint32
	Pid     uint32   // as it sees itself
	Ring    uint64   // bytes of its ring
	At      uint64   // address of the nonce; 0: do not read my memory
	Nonce   [16]byte // in its page
	Slots   uint32   // grants in its file; 0: it takes none
	_       [12]byte
}

const (
	helloMagic   = "stepvan\x00"
	helloVersion = 2
	helloBytes   = 64
	helloFDs     = 2
)

func (h hello) encode() []byte {
	copy(h.Magic[:], helloMagic)
	h.Version = helloVersion
	b, _ := binary.Append(nil, binary.LittleEndian, &h) // its fields have fixed sizes
	return b
}

func (h *hello) decode(b []byte) error {
	_, err := binary.Decode(b, binary.LittleEndian, h)
	switch {
	case h.isOtherVersion():
		return errs.Protocol("hello", 8, "the peer shares memory by version %d, this program by %d: run the same stepvan version on every node", h.Version, helloVersion)
	case err != nil || len(b) != helloBytes || string(h.Magic[:]) != helloMagic:
		return errs.Protocol("hello", 0, "what connected is not a stepvan peer")
	}
	if h.Ring < minRing || h.Ring > maxRing || h.Ring&(h.Ring-1) != 0 {
		return errs.Protocol("ring", 16, "%d bytes", h.Ring)
	}
	if h.Slots != 0 && (h.Slots < minSlots || h.Slots > maxSlots || h.Slots&(h.Slots-1) != 0) {
		return errs.Protocol("slots", 48, "%d grants", h.Slots)
	}
	return nil
}

// isOtherVersion reports whether the peer shares memory by another version. Magic and Version keep their places in all
// versions.
func (h *hello) isOtherVersion() bool {
	return string(h.Magic[:]) == helloMagic && h.Version != helloVersion
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
		return p, errs.Protocol("descriptors", 0, "%d came with the hello, %d belong to it", len(fds), helloFDs)
	}
	if p.file, err = shm.MapReadOnly(fds[0], fileBytes(int(p.hello.Ring), int(p.hello.Slots))); err != nil {
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
		return fmt.Errorf("%w (%w)", errs.Protocol("file", 0, "%v", err), stepvan.ErrInvalid)
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
