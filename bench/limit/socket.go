package limit

import (
	"fmt"
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
)

// rawSocket is a connected non-blocking socket that Go's poller does not know.
// One goroutine at a time.
type rawSocket struct {
	fd int
	spin
}

// errGone means that the other side has closed.
var errGone = fmt.Errorf("the other side of the limit is gone: %w", net.ErrClosed)

// takeSocket makes a rawSocket of a connection, which is closed.
func takeSocket(c net.Conn, how spin) (*rawSocket, error) {
	defer c.Close()
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil, errs.Invalid("a %T has no descriptor", c)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, dupErr := -1, error(nil)
	err = raw.Control(func(old uintptr) { fd, dupErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err == nil {
		err = dupErr
	}
	if err != nil {
		return nil, fmt.Errorf("duplicate socket: %w", err)
	}
	return &rawSocket{fd: fd, spin: how}, nil
}

// tune sets the options that tcpvan sets within one machine. Otherwise congestion control, or
// waiting to fill a packet, would slow the limit down. A Unix socket needs neither.
func tune(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
	})
}

// send writes all of b.
func (s *rawSocket) send(b []byte) error {
	for len(b) > 0 {
		n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		if err := s.moved(int(n), e); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		if e == 0 {
			b = b[n:]
		}
	}
	return nil
}

// receive fills b.
func (s *rawSocket) receive(b []byte) error {
	for len(b) > 0 {
		n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
		if err := s.moved(int(n), e); err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if e == 0 {
			b = b[n:]
		}
	}
	return nil
}

// moved checks the result of a call. An empty or a full socket is not an error.
func (s *rawSocket) moved(n int, e syscall.Errno) error {
	switch {
	case e == 0 && n > 0:
		s.found()
		return nil
	case e == 0, e == unix.EPIPE, e == unix.ECONNRESET:
		return errGone
	case e != unix.EAGAIN && e != unix.EINTR:
		return e
	}
	return s.missed()
}

func (s *rawSocket) close() { unix.Close(s.fd) }
