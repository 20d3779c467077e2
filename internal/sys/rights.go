package sys

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SendRights sends a message with descriptors through a Unix socket, without blocking.
func SendRights(sock int, b []byte, fds ...int) error {
	rights := unix.UnixRights(fds...)
	return Retry(func() error { return unix.Sendmsg(sock, b, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) })
}

// Rights returns the descriptors that came with a message.
func Rights(oob []byte) (fds []int) {
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

// ErrCut says that a message is longer than what was to receive it.
var ErrCut = errors.New("the message is longer than its buffer")

// MessageBuffer receives one message after the other, and allocates nothing for those without descriptors.
type MessageBuffer struct {
	oob [128]byte
	vec unix.Iovec
	msg unix.Msghdr
}

// Receive receives one message to b without blocking. It returns the bytes, and the descriptors that came with them,
// which are the caller's. A socket that has nothing, or whose peer has ended, gives Again.
func (m *MessageBuffer) Receive(sock int, b []byte) (n int, fds []int, err error) {
	m.vec = Iovec(b)
	m.msg = unix.Msghdr{Iov: &m.vec, Control: &m.oob[0]}
	m.msg.SetIovlen(1)
	m.msg.SetControllen(len(m.oob))
	for {
		k, _, e := unix.Syscall(unix.SYS_RECVMSG, uintptr(sock), uintptr(unsafe.Pointer(&m.msg)), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		switch {
		case e == unix.EINTR || e == unix.ECONNRESET: // the peer is gone; what it has sent is still there
			continue
		case e != 0 || k == 0 && m.msg.Controllen == 0:
			return 0, nil, Again
		}
		if m.msg.Controllen > 0 {
			fds = Rights(m.oob[:m.msg.Controllen])
		}
		if m.msg.Flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			CloseAll(fds)
			return 0, nil, ErrCut
		}
		return int(k), fds, nil
	}
}
