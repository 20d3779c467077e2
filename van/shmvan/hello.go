package shmvan

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
)

// hello is what each side says of itself before anything else, with three descriptors: its
// file (layout.go), its van's page, and the eventfd that wakes it.
type hello struct {
	ring  uint64   // bytes of its ring
	pid   uint32   // as it sees itself
	nonce [16]byte // in its page
	at    uint64   // address of the nonce; 0: do not read my memory
}

const (
	helloMagic   = "stepvan\x00"
	helloVersion = 1
	helloBytes   = 64
	helloFDs     = 3
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
	return b
}

func (h *hello) decode(b []byte) error {
	if len(b) != helloBytes || string(b[:8]) != helloMagic {
		return &errs.ProtocolError{Field: "hello", Reason: "who connected is no stepvan peer"}
	}
	le := binary.LittleEndian
	if v := le.Uint32(b[8:]); v != helloVersion {
		return &errs.ProtocolError{Field: "hello", Offset: 8, Reason: fmt.Sprintf("the peer shares memory by version %d, this program by %d: run the same stepvan version on every node", v, helloVersion)}
	}
	h.pid, h.ring, h.at = le.Uint32(b[12:]), le.Uint64(b[16:]), le.Uint64(b[24:])
	copy(h.nonce[:], b[32:])
	if h.ring < leastRing || h.ring > mostRing || h.ring&(h.ring-1) != 0 {
		return &errs.ProtocolError{Field: "ring", Offset: 16, Reason: fmt.Sprintf("%d bytes", h.ring)}
	}
	return nil
}

// peer is the other process of a connection, as far as it has introduced itself.
type peer struct {
	hello hello
	file  *shm.Memory // its file and its van's page, for reading
	page  *shm.Memory
	edge  shm.Edge // of its file
	event int      // eventfd that wakes it
	pid   int      // as this process sees it; 0 when it cannot
	pidfd int      // -1 when there is none, or the peer is this process
}

// meet takes what a peer said and sent, maps it, and owns the descriptors from here on.
func meet(b []byte, fds []int, pid int) (p *peer, err error) {
	p = &peer{event: -1, pidfd: -1, pid: pid}
	defer func() {
		if err != nil {
			p.part()
		}
	}()
	defer closeAll(fds[:min(len(fds), helloFDs-1)])
	if err := p.hello.decode(b); err != nil {
		closeAll(fds[min(len(fds), helloFDs-1):])
		return p, err
	}
	if len(fds) != helloFDs {
		closeAll(fds[min(len(fds), helloFDs-1):])
		return p, &errs.ProtocolError{Field: "descriptors", Reason: fmt.Sprintf("%d came with the hello, %d belong to it", len(fds), helloFDs)}
	}
	p.event = fds[2]
	if p.file, err = shm.MapReadOnly(fds[0], ringStart+int64(p.hello.ring)); err != nil {
		return p, foul(err)
	}
	if p.page, err = shm.MapReadOnly(fds[1], pageBytes); err != nil {
		return p, foul(err)
	}
	if err := isEventFD(p.event); err != nil {
		return p, err
	}
	id, err := shm.Identity(fds[0])
	if err != nil {
		return p, err
	}
	p.edge = shm.EdgeOf(id)
	if pid > 0 && pid != unix.Getpid() {
		if p.pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
			p.pidfd = -1 // the end of the socket tells of the end of the process as well
		}
	}
	return p, nil
}

// foul marks what only a broken or hostile peer does. What this side lacks (descriptors, memory) is not the peer's fault.
func foul(err error) error {
	if errors.Is(err, errs.ErrInvalid) {
		return fmt.Errorf("%w (%w)", &errs.ProtocolError{Field: "file", Reason: err.Error()}, errs.ErrInvalid)
	}
	return err
}

// isEventFD refuses a descriptor that could block, or be something that must not be written to.
func isEventFD(fd int) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == nil && flags&unix.O_NONBLOCK != 0 {
		var link [64]byte
		n, e := unix.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd), link[:])
		if e != nil || string(link[:n]) == "anon_inode:[eventfd]" {
			return nil // without /proc it cannot be known better
		}
	}
	return &errs.ProtocolError{Field: "descriptors", Reason: "the third is no non-blocking eventfd"}
}

// part gives back everything of the peer. Nobody may use its memory any more.
func (p *peer) part() {
	if p.file != nil {
		_ = p.file.Close() // a mapping that is there can be unmapped
	}
	if p.page != nil {
		_ = p.page.Close()
	}
	if p.event >= 0 {
		_ = unix.Close(p.event)
	}
	if p.pidfd >= 0 {
		_ = unix.Close(p.pidfd)
	}
	p.event, p.pidfd = -1, -1
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
