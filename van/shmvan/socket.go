package shmvan

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
)

// Two kinds of message go through the socket after the hellos. Single bytes say no more than "wake up". Files come
// before the first record that names them: number and size, with the descriptor. Each connection has a socket of its
// own, so what a peer does to the socket hurts no other connection.
const (
	fileMagic        = 0x70617263656c0001
	fileMessageBytes = 24
	// maxSocketReads is how many messages one look at a socket takes, so that other endpoints have their turn.
	maxSocketReads = 64
)

var wakeByte = [1]byte{1}

var errNothing = errors.New("nothing in the socket")

// sendDescriptors sends without blocking. stepvan.ErrWouldBlock: not at this moment, because the peer has to read first
// or the kernel has to find memory.
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
			return fmt.Errorf("the kernel does not pass the descriptor on: %w: %w", err, stepvan.ErrNotSupported)
		}
	}
}

// socketBuffer is the memory of one receipt, so that receiving allocates nothing: wake-ups are frequent.
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
		if e == unix.EINTR || e == unix.ECONNRESET { // the peer is gone; what it has sent is still there
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
