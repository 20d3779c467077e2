package limit

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/sys"
)

// rawSocket is a connected socket that Go's poller does not know. One goroutine at a time.
type rawSocket struct {
	fd      int
	out, in []byte
	spin
}

// errGone means that the other side has closed.
var errGone = fmt.Errorf("the other side of the limit is gone: %w", net.ErrClosed)

// newStream makes a side of a connection, which belongs to it from then on.
func newStream(c net.Conn, s *Spec, out, in []byte) (side, error) {
	fd := -1
	err := control(c, func(own int) (err error) {
		tune(c, own)
		if !s.parks() {
			fd, err = unix.FcntlInt(uintptr(own), unix.F_DUPFD_CLOEXEC, 0)
		}
		return err
	})
	if err == nil && s.parks() {
		return &parked{c, out, in}, nil
	}
	c.Close()
	if err != nil {
		return nil, fmt.Errorf("take over a socket: %w", err)
	}
	return &rawSocket{fd, out, in, s.spin()}, nil
}

// control calls use with the descriptor of a connection.
func control(c net.Conn, use func(fd int) error) error {
	s, ok := c.(syscall.Conn)
	if !ok {
		return errs.Invalid("a %T has no descriptor", c)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = use(int(fd)) })
	return errors.Join(err, failed)
}

// tune sets the options that tcpvan sets within one machine. Otherwise congestion control, or
// waiting to fill a packet, would slow the limit down. A Unix socket needs neither.
func tune(c net.Conn, fd int) {
	if _, tcp := c.(*net.TCPConn); tcp {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
	}
}

// send writes all bytes that go out.
func (s *rawSocket) send() error { return s.sendAll(s.out) }

func (s *rawSocket) sendAll(b []byte) error { return s.move("send", b, sys.Send) }

// receive fills the memory for the bytes that come in.
func (s *rawSocket) receive() error {
	return s.move("receive", s.in, func(fd int, b []byte) (int, syscall.Errno) { return sys.Recv(fd, b, 0) })
}

// move repeats a system call until it has moved all of b. An empty or a full socket is not an error.
func (s *rawSocket) move(what string, b []byte, call func(fd int, b []byte) (int, syscall.Errno)) error {
	for len(b) > 0 {
		n, e := call(s.fd, b)
		var err error
		switch {
		case e == 0 && n > 0:
			s.found()
			b = b[n:]
		case e == unix.EAGAIN:
			err = s.missed()
		case e == 0, e == unix.EPIPE, e == unix.ECONNRESET:
			err = errGone
		default:
			err = e
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

func (s *rawSocket) buffers() (out, in []byte) { return s.out, s.in }

func (s *rawSocket) close() { unix.Close(s.fd) }
