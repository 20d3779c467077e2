package sys

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// Again says that a descriptor has nothing, or takes nothing, at this moment.
	Again = syscall.EAGAIN
	// MaxIovecs is the most that Sendmsg and Readv take (IOV_MAX).
	MaxIovecs = 1024
)

// Sendmsg sends what iov lists, which is not empty. A raw call.
func Sendmsg(fd int, iov []unix.Iovec) (int, syscall.Errno) {
	msg := unix.Msghdr{Iov: &iov[0]}
	msg.SetIovlen(len(iov))
	return raw(unix.SYS_SENDMSG, fd, unsafe.Pointer(&msg), [3]uintptr{unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT})
}

// Send sends b, which is not empty. A raw call.
func Send(fd int, b []byte) (int, syscall.Errno) {
	return raw(unix.SYS_SENDTO, fd, unsafe.Pointer(&b[0]), [3]uintptr{uintptr(len(b)), unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT})
}

// Readv reads to where iov says, which is not empty. A raw call. 0 bytes without an error are the end of a stream.
func Readv(fd int, iov []unix.Iovec) (int, syscall.Errno) {
	return raw(unix.SYS_READV, fd, unsafe.Pointer(&iov[0]), [3]uintptr{uintptr(len(iov))})
}

// Recv receives to b, which is not empty. A raw call. 0 bytes without an error are the end of a stream.
func Recv(fd int, b []byte, flags uintptr) (int, syscall.Errno) {
	return raw(unix.SYS_RECVFROM, fd, unsafe.Pointer(&b[0]), [3]uintptr{uintptr(len(b)), flags | unix.MSG_DONTWAIT})
}

// Iovec names b to the kernel.
func Iovec(b []byte) unix.Iovec {
	v := unix.Iovec{Base: unsafe.SliceData(b)}
	v.SetLen(len(b))
	return v
}

// Duplicate duplicates the descriptor of c, which may be closed afterwards. It stays non-blocking.
func Duplicate(c syscall.Conn) (fd int, err error) {
	fd = -1
	e := Control(c, func(s int) { fd, err = unix.FcntlInt(uintptr(s), unix.F_DUPFD_CLOEXEC, 0) })
	if e == nil {
		e = err
	}
	if e != nil {
		return -1, fmt.Errorf("duplicate socket: %w", e)
	}
	return fd, nil
}

// Control calls use with the descriptor of c.
func Control(c syscall.Conn, use func(fd int)) error {
	r, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return r.Control(func(fd uintptr) { use(int(fd)) })
}

// Shows reports whether a descriptor shows one of the events, without blocking.
func Shows(fd int, events int16) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&events != 0
}

// CloseAll closes descriptors.
func CloseAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
