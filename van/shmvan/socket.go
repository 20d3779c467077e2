package shmvan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
)

// Two kinds of message go through the socket after the hellos: single bytes, which say no more than "wake up",
// and files, before the first record that names them: number and size, with the descriptor. The peer's own
// socket wakes it, and nothing that it shares with others: what it does to the socket hurts nobody else.
const (
	fileMagic        = 0x70617263656c0001
	fileMessageBytes = 24
	// mostParcels is how many messages one look at a socket takes, so that others have their turn.
	maxSocketReads = 64
)

var wakeByte = [1]byte{1}

// wake makes the peer's FD readable. A socket that takes nothing has something for the peer to read, which does the same.
// The memory of the connection must be mapped, for as long is the socket open.
func (e *endpoint) wake() {
	for {
		if unix.Sendto(e.sock, wakeByte[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) != unix.EINTR {
			return
		}
	}
}

// drain takes what is in the socket. Poller only.
func (e *endpoint) drain() {
	for range maxSocketReads {
		if e.state.Load() != stateOpen {
			e.watchEndOnly()
			return
		}
		e.filesMu.Lock()
		f, err := e.readMessage()
		e.filesMu.Unlock()
		switch {
		case errors.Is(err, errNothing):
			return
		case err != nil:
			e.lose(&stepvan.OpError{Op: "receive", Van: name, Peer: e.name, Err: err})
		case f == nil:
			return // a sleeper is woken once; what comes behind is told again
		}
	}
}

// deafen has the kernel tell no more of the socket than its end.
func (e *endpoint) watchEndOnly() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sock >= 0 {
		e.v.change(unix.EPOLL_CTL_MOD, e.sock, unix.EPOLLRDHUP)
	}
}

var errNothing = errors.New("nothing in the socket")

// unpack takes one message off the socket: a file, which is known from here on, or nil. errEmpty when there is none.
// filesMu is held.
func (e *endpoint) readMessage() (*peerFile, error) {
	n, fds, err := e.box.receive(e.sock)
	if err != nil || n == len(wakeByte) && len(fds) == 0 {
		return nil, err
	}
	defer closeAll(fds)
	b, le := &e.box.bytes, binary.LittleEndian
	id, size := le.Uint64(b[8:]), le.Uint64(b[16:])
	if n != fileMessageBytes || len(fds) != 1 || le.Uint64(b[:]) != fileMagic || e.known(id) != nil || len(e.files) >= maxFiles {
		return nil, &stepvan.ProtocolError{Field: "file", Reason: fmt.Sprintf("%d bytes with %d descriptors are no file", n, len(fds))}
	}
	mem, err := shm.Map(fds[0], int64(size))
	if err != nil {
		return nil, peerError(err)
	}
	f := &peerFile{id: id, mem: mem, all: mem.Bytes()}
	f.uses.Store(1)
	e.files = append(e.files, f)
	return f, nil
}

// sendParcel sends without blocking. stepvan.ErrWouldBlock: not at this moment, since the peer has to read first, or
// the kernel has to find memory.
func sendDescriptors(sock int, b []byte, fds ...int) error {
	for {
		err := unix.Sendmsg(sock, b, unix.UnixRights(fds...), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch err {
		case nil:
			return nil
		case unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM, unix.ETOOMANYREFS:
			return stepvan.ErrWouldBlock
		case unix.EPIPE, unix.ECONNRESET:
			return stepvan.ErrPeerLost
		default:
			return fmt.Errorf("the kernel passes no descriptor on: %w: %w", err, stepvan.ErrNotSupported)
		}
	}
}

// mailbox is the memory of one receipt, so that receiving allocates nothing: wake-ups are frequent.
type socketBuffer struct {
	bytes [fileMessageBytes + 1]byte
	oob   [128]byte
	vec   unix.Iovec
	msg   unix.Msghdr
}

// receive takes one message without blocking: its length, and its descriptors, which are the caller's.
func (b *socketBuffer) receive(sock int) (n int, fds []int, err error) {
	b.vec.Base = &b.bytes[0]
	b.vec.SetLen(len(b.bytes))
	b.msg = unix.Msghdr{Iov: &b.vec, Control: &b.oob[0]}
	b.msg.SetIovlen(1)
	b.msg.SetControllen(len(b.oob))
	for {
		k, _, e := unix.Syscall(unix.SYS_RECVMSG, uintptr(sock), uintptr(unsafe.Pointer(&b.msg)), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		if e == unix.EINTR || e == unix.ECONNRESET { // the peer is gone, but what it has sent is not
			continue
		}
		if e != 0 || k == 0 && b.msg.Controllen == 0 { // EPOLLRDHUP tells when the peer has shut its end down
			return 0, nil, errNothing
		}
		if b.msg.Controllen > 0 {
			fds = rightsOf(b.oob[:b.msg.Controllen])
		}
		if b.msg.Flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			closeAll(fds)
			return 0, nil, &stepvan.ProtocolError{Field: "message", Reason: "it is longer than any"}
		}
		return int(k), fds, nil
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
