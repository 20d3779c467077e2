package shmvan

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
)

// Two kinds of message go through the socket after the hellos: single bytes, which say no more than "wake up",
// and files, before the first record that names them: number and size, with the descriptor. The peer's own
// socket wakes it, and nothing that it shares with others: what it does to the socket hurts nobody else.
const (
	parcelMagic = 0x70617263656c0001
	parcelBytes = 24
	// mostParcels is how many messages one look at a socket takes, so that others have their turn.
	mostParcels = 64
)

var nudge = [1]byte{1}

// wake makes the peer's FD readable. A socket that takes nothing has something for the peer to read, which does the same.
// The memory of the connection must be mapped, for as long is the socket open.
func (e *endpoint) wake() {
	for {
		if unix.Sendto(e.sock, nudge[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) != unix.EINTR {
			return
		}
	}
}

// drain takes what is in the socket. Poller only.
func (e *endpoint) drain() {
	for range mostParcels {
		if e.state.Load() != stateOpen {
			e.deafen()
			return
		}
		e.filesMu.Lock()
		_, err := e.unpack()
		e.filesMu.Unlock()
		switch {
		case errors.Is(err, errEmpty):
			return
		case err != nil:
			e.lose(&errs.OpError{Op: "receive", Van: name, Peer: e.name, Err: err})
		}
	}
}

// deafen has the kernel tell no more of the socket than its end.
func (e *endpoint) deafen() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sock >= 0 {
		e.v.attend(unix.EPOLL_CTL_MOD, e.sock, unix.EPOLLRDHUP)
	}
}

var errEmpty = errors.New("nothing in the socket")

// unpack takes one message off the socket: a file, which is known from here on, or nil. errEmpty when there is none.
// filesMu is held.
func (e *endpoint) unpack() (*peerFile, error) {
	var b [parcelBytes + 1]byte
	n, fds, err := recvParcel(e.sock, b[:])
	defer func() { closeAll(fds) }()
	switch {
	case errors.As(err, new(unix.Errno)) || err == nil && n == 0: // EPOLLRDHUP tells when the peer has shut its end down
		return nil, errEmpty
	case err != nil:
		return nil, err
	case n == len(nudge) && len(fds) == 0:
		return nil, nil
	}
	le := binary.LittleEndian
	id, size := le.Uint64(b[8:]), le.Uint64(b[16:])
	if n != parcelBytes || len(fds) != 1 || le.Uint64(b[:]) != parcelMagic || e.known(id) != nil || len(e.files) >= mostFiles {
		return nil, &errs.ProtocolError{Field: "file", Reason: fmt.Sprintf("%d bytes with %d descriptors are no file", n, len(fds))}
	}
	mem, err := shm.Map(fds[0], int64(size))
	if err != nil {
		return nil, foul(err)
	}
	f := &peerFile{id: id, mem: mem, all: mem.Bytes()}
	f.uses.Store(1)
	e.files = append(e.files, f)
	return f, nil
}

// sendParcel sends without blocking; false when the socket takes nothing.
func sendParcel(sock int, b []byte, fds ...int) bool {
	for {
		err := unix.Sendmsg(sock, b, unix.UnixRights(fds...), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err == nil
		}
	}
}

// recvParcel receives without blocking. The descriptors are the caller's.
func recvParcel(sock int, b []byte) (n int, fds []int, err error) {
	var oob [128]byte
	for {
		k, on, flags, _, err := unix.Recvmsg(sock, b, oob[:], unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR || err == unix.ECONNRESET { // the peer is gone, but what it has sent is not
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		fds = rightsOf(oob[:on])
		if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			closeAll(fds)
			return 0, nil, &errs.ProtocolError{Field: "message", Reason: "it is longer than any"}
		}
		return k, fds, nil
	}
}

func rightsOf(oob []byte) (fds []int) {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range list {
		if more, err := unix.ParseUnixRights(&list[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	return fds
}
