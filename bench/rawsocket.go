package bench

import (
	"fmt"
	"net"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
)

// rawSocket is a connected non-blocking socket that Go's poller does not know.
// One goroutine at a time.
type rawSocket struct {
	fd    int
	empty int       // calls in a row that moved nothing
	since time.Time // of the first look at the clock among them
	alone bool      // one core: the other side runs only when this one lets go
}

const (
	emptyBeforeYield = 1 << 8  // calls, some 50 us
	emptyBeforeClock = 1 << 13 // calls
	silentTime       = 20 * time.Second
)

// errSocketGone says that the other side has closed.
var errSocketGone = fmt.Errorf("the other side of the limit's socket is gone: %w", net.ErrClosed)

// takeSocket makes a rawSocket of a connection, which is closed.
func takeSocket(c net.Conn) (*rawSocket, error) {
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
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // a Unix socket needs none
	// As tcpvan does within one machine, so that the limit is no slower for its congestion control.
	_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
	return &rawSocket{fd: fd, alone: runtime.NumCPU() == 1}, nil
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

// moved judges the result of a call. A socket that is merely empty or full is no
// error, but after many such calls the core is offered to others, and after silentTime the other side is given up.
func (s *rawSocket) moved(n int, e syscall.Errno) error {
	switch {
	case e == 0 && n > 0:
		s.empty = 0
		return nil
	case e == 0, e == unix.EPIPE, e == unix.ECONNRESET:
		return errSocketGone
	case e != unix.EAGAIN && e != unix.EINTR:
		return e
	}
	s.empty++
	if s.alone || s.empty%emptyBeforeYield == 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // cannot fail
	}
	if s.empty == emptyBeforeClock {
		s.since = time.Now()
	}
	if s.empty%emptyBeforeClock == 0 && time.Since(s.since) > silentTime {
		return errs.Invalid("the other side has been silent for %v", silentTime)
	}
	return nil
}

func (s *rawSocket) close() { unix.Close(s.fd) }
