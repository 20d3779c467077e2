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
	// mostMessages is how many messages one look at a socket takes, so that others have their turn.
	mostMessages = 64
)

var wakeByte = [1]byte{1}

// signalPeer makes the peer's FD readable. A full socket has something for the peer to read, which does the same.
// The caller knows that the memory of the connection is mapped: the socket is open as long.
func (e *endpoint) signalPeer() {
	for {
		if unix.Sendto(e.sock, wakeByte[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) != unix.EINTR {
			return
		}
	}
}

// readSocket takes the messages that are in the socket. Only Poll calls it.
func (e *endpoint) readSocket() {
	for range mostMessages {
		if e.state.Load() != stateOpen {
			e.watchEndOnly()
			return
		}
		e.pm.mu.Lock()
		f, err := e.pm.receiveFile()
		e.pm.mu.Unlock()
		switch {
		case errors.Is(err, errEmpty):
			return
		case err != nil:
			e.lose(&stepvan.OpError{Op: "receive", Van: name, Peer: e.name, Err: err})
		case f == nil:
			return // a sleeper is woken once; what comes behind is told again
		}
	}
}

// watchEndOnly has the kernel report only the end of the socket.
func (e *endpoint) watchEndOnly() {
	e.tx.mu.Lock()
	defer e.tx.mu.Unlock()
	if e.sock >= 0 {
		e.v.set.change(unix.EPOLL_CTL_MOD, e.sock, unix.EPOLLRDHUP)
	}
}

var errEmpty = errors.New("nothing in the socket")

// receiveFile takes one message off the socket and returns the file that it carried, or nil. errEmpty: there is no message.
// pm.mu is held.
func (pm *peerMemory) receiveFile() (*peerFile, error) {
	n, fds, err := pm.box.receive(pm.e.sock)
	if err != nil || n == len(wakeByte) && len(fds) == 0 {
		return nil, err
	}
	defer closeAll(fds)
	b, le := &pm.box.bytes, binary.LittleEndian
	id, size := le.Uint64(b[8:]), le.Uint64(b[16:])
	if n != fileMessageBytes || len(fds) != 1 || le.Uint64(b[:]) != fileMagic || pm.known(id) != nil || len(pm.files) >= mostFiles {
		return nil, &stepvan.ProtocolError{Field: "file", Reason: fmt.Sprintf("%d bytes with %d descriptors are no file", n, len(fds))}
	}
	mem, err := shm.Map(fds[0], int64(size))
	if err != nil {
		return nil, asProtocolError(err)
	}
	f := &peerFile{id: id, mem: mem, all: mem.Bytes()}
	f.uses.Store(1)
	pm.files = append(pm.files, f)
	return f, nil
}

// sendFile sends without blocking. stepvan.ErrWouldBlock: not at this moment, since the peer has to read first, or
// the kernel has to find memory.
func sendFile(sock int, b []byte, fds ...int) error {
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

// fileReceiver is the memory of one receipt, so that receiving allocates nothing: wake-ups are frequent.
type fileReceiver struct {
	bytes [fileMessageBytes + 1]byte
	oob   [128]byte
	vec   unix.Iovec
	msg   unix.Msghdr
}

// receive takes one message without blocking: its length, and its descriptors, which are the caller's.
func (b *fileReceiver) receive(sock int) (n int, fds []int, err error) {
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
			return 0, nil, errEmpty
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
