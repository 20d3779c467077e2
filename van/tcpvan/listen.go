package tcpvan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/sys"
)

// listener accepts connections.
type listener struct {
	v    *tcpVan
	fd   int
	slot int
	addr address
	file os.FileInfo // of a Unix socket with a path, to remove no other than its own
}

// Listen implements van.Van. The returned address has the port that was taken, and the host as given. A
// caller that listens at "[::]:0" must tell peers a host by which they reach this machine.
func (v *tcpVan) Listen(text string) (bound string, err error) {
	a, err := parseAddress(text)
	if err == nil && v.opts.Local {
		ctx, cancel := context.WithTimeout(v.ctx, resolveTime)
		_, err = a.targets(ctx, v.opts.Local)
		cancel()
	}
	var l *listener
	if err == nil {
		l, err = v.listen(a)
	}
	if err != nil {
		return "", &stepvan.OpError{Op: "listen at " + text, Van: name, Err: err}
	}
	return l.addr.String(), nil
}

func (v *tcpVan) listen(a address) (*listener, error) {
	l := &listener{v: v, addr: a}
	if err := l.open(); err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	slot, err := v.set.add(l.fd, l, unix.EPOLLIN|sys.EdgeTriggered)
	if err != nil {
		l.close()
		return nil, err
	}
	l.slot = slot
	v.listeners = append(v.listeners, l)
	return l, nil
}

// open binds. Go's net resolves the name and makes the socket; it is ours from then on.
func (l *listener) open() error {
	lc := net.ListenConfig{KeepAlive: -1}
	lc.SetMultipathTCP(false) // another kind of socket, and slower
	if l.addr.unix && !l.addr.abstract() {
		shm.RemoveAbandoned(l.addr.text)
	}
	n, err := lc.Listen(l.v.ctx, l.addr.network(), l.addr.text)
	if err != nil {
		return netCause(err)
	}
	defer func() { _ = n.Close() }()
	if u, ok := n.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
		l.file, _ = os.Stat(l.addr.text)
	} else {
		l.addr.text = n.Addr().String()
	}
	l.fd, err = sys.Duplicate(n.(syscall.Conn))
	return errs.Descriptors(err)
}

// close frees the socket and its file. Any goroutine, once.
func (l *listener) close() {
	_ = unix.Close(l.fd)
	if l.file == nil {
		return
	}
	if fi, err := os.Stat(l.addr.text); err == nil && os.SameFile(fi, l.file) {
		_ = os.Remove(l.addr.text)
	}
}

// acceptBound is how many connections are accepted before others get their turn.
const acceptBound = 64

// ready implements watched: it accepts what waits.
func (l *listener) ready(uint32) {
	for range acceptBound {
		if l.v.pending.crowded() {
			time.AfterFunc(restTime, l.rearm) // the kernel's queue holds the others
			return
		}
		fd, from, err := unix.Accept4(l.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			tune(fd, l.addr.unix, l.v.opts.SocketBuffer)
			l.v.pending.admit(fd, l.nameOf(fd, from))
		case unix.EAGAIN:
			return
		case unix.EINTR, unix.ECONNABORTED, unix.EPROTO, unix.ENETDOWN, unix.EHOSTUNREACH, unix.ENETUNREACH:
		default:
			// Descriptors or memory have run out. What waits stays in the kernel's queue.
			if l.v.opts.Starved != nil {
				l.v.opts.Starved(&stepvan.OpError{Op: "accept at " + l.addr.String(), Van: name, Err: errs.Descriptors(err)})
			}
			l.v.pending.makeRoom()
			time.AfterFunc(restTime, l.rearm)
			return
		}
	}
	l.rearm()
}

// restTime is the pause after which a listener that found no descriptor, or no room, tries again.
const restTime = 100 * time.Millisecond

// rearm has epoll report what waits once more.
func (l *listener) rearm() {
	l.v.mu.Lock()
	defer l.v.mu.Unlock()
	_ = l.v.set.epoll.Change(l.fd, unix.EPOLLIN|sys.EdgeTriggered, l.slot)
}

// nameOf names the peer of an accepted socket.
func (l *listener) nameOf(fd int, from unix.Sockaddr) string {
	if a := addrPort(from); a.IsValid() {
		return a.String()
	}
	if c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
		return fmt.Sprintf("%v (process %d)", l.addr, c.Pid)
	}
	return l.addr.String()
}

// netCause takes the errno out of an error of package net, whose text repeats the address, and adds what to do.
func netCause(err error) error {
	var no syscall.Errno
	if !errors.As(err, &no) {
		return err
	}
	switch no {
	case unix.EADDRINUSE:
		return fmt.Errorf("%w: choose another port or stop the process that holds it", no)
	case unix.EADDRNOTAVAIL:
		return fmt.Errorf("%w: no interface of this machine has that address", no)
	case unix.EACCES, unix.EPERM:
		return fmt.Errorf("%w: not allowed for this user; ports below 1024 need more rights", no)
	}
	return errs.Descriptors(no)
}

// resolveTime bounds the look-up of a name in Listen.
const resolveTime = 10 * time.Second
