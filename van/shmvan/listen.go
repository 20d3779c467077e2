package shmvan

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/van"
)

const (
	helloTime  = 10 * time.Second // for a peer that connected to introduce itself
	mostGuests = 256              // such peers at once; more wait in the socket's queue
	firstPause = time.Millisecond // between attempts to dial; doubles
	lastPause  = 100 * time.Millisecond
	socketType = "unixpacket"
	prefix     = "shm."
	anyName    = ":0"
)

// listener accepts connections at a socket.
type listener struct {
	v    *node
	sock *net.UnixListener
}

// Listen implements van.Van. addr is a name for the socket in Options.Dir, "" or ":0" for one that nobody
// has, or an address as Listen returns it.
func (v *node) Listen(addr string) (bound string, err error) {
	path, err := v.listen(addr)
	if err != nil {
		return "", &errs.OpError{Op: "listen at " + addr, Van: name, Err: err}
	}
	return v.join(path), nil
}

func (v *node) listen(addr string) (string, error) {
	path, err := v.socket(addr)
	if err != nil {
		return "", err
	}
	if err := shm.PrivateDir(filepath.Dir(path)); err != nil {
		return "", err
	}
	l, err := net.ListenUnix(socketType, &net.UnixAddr{Name: path, Net: socketType})
	if err != nil {
		return "", plain(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		_ = l.Close()
		return "", errs.ErrClosed
	}
	w := &listener{v: v, sock: l}
	v.listeners[w] = struct{}{}
	v.work.Go(w.accept)
	return path, nil
}

// socket is the path that addr stands for.
func (v *node) socket(addr string) (string, error) {
	switch {
	case addr == "" || addr == anyName:
		return filepath.Join(v.opt.Dir, fmt.Sprintf("%s%d.%016x", prefix, os.Getpid(), rand.Uint64())), nil
	case strings.HasPrefix(addr, v.host+"/"):
		return v.split(addr)
	case strings.Trim(addr, nameLetters) != "":
		return "", errs.Invalid("%q is no name for a socket: letters, digits, dots, dashes, or an address that Listen has returned", addr)
	}
	return filepath.Join(v.opt.Dir, addr), nil
}

const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// plain drops what net says besides the cause.
func plain(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

func (l *listener) close() { _ = l.sock.Close() }

// accept lets peers in until the listener is closed. Each introduces itself on a goroutine of its own.
func (l *listener) accept() {
	guests := make(chan struct{}, mostGuests)
	for {
		c, err := l.sock.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptors left, for example: they come back
			select {
			case <-time.After(lastPause):
				continue
			case <-l.v.ctx.Done():
				return
			}
		}
		select {
		case guests <- struct{}{}:
		case <-l.v.ctx.Done():
			_ = c.Close()
			return
		}
		l.v.work.Go(func() {
			defer func() { <-guests }()
			l.v.welcome(c)
		})
	}
}

// welcome exchanges greetings with who connected. Who does not know how is turned away without a word.
func (v *node) welcome(c *net.UnixConn) {
	stop := context.AfterFunc(v.ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	e, err := v.greet(c, false, time.Now().Add(helloTime))
	_ = c.Close() // the endpoint has a descriptor of its own
	if err == nil {
		_ = v.add(e, true)
	}
}

// greet speaks and hears the hellos, the dialer first, and makes the endpoint.
func (v *node) greet(c *net.UnixConn, dialer bool, deadline time.Time) (*endpoint, error) {
	if err := c.SetDeadline(deadline); err != nil {
		return nil, plain(err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, plain(err)
	}
	pid, err := credentials(raw)
	if err != nil {
		return nil, err
	}
	own, err := newOwn(v.opt.RingBytes)
	if err != nil {
		return nil, err
	}
	var p *peer
	speak := func() error { return v.introduce(c, own) }
	hear := func() (err error) { p, err = hear(c, pid); return err }
	steps := []func() error{hear, speak}
	if dialer {
		steps = []func() error{speak, hear}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			own.close()
			if p != nil {
				p.part()
			}
			return nil, err
		}
	}
	sock := -1
	if e := raw.Control(func(fd uintptr) { sock, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); e != nil || err != nil {
		own.close()
		p.part()
		return nil, errors.Join(e, err)
	}
	return v.newEndpoint(sock, own, p), nil
}

// credentials refuses processes of other users, and returns the pid of one of this.
func credentials(raw syscall.RawConn) (pid int, err error) {
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return 0, plain(e)
	}
	if err != nil {
		return 0, err
	}
	if int(cred.Uid) != os.Getuid() {
		return 0, fmt.Errorf("the peer is a process of user %d, not of %d: %w", cred.Uid, os.Getuid(), errs.ErrNotSupported)
	}
	return int(cred.Pid), nil
}

func (v *node) introduce(c *net.UnixConn, own *own) error {
	v.mu.Lock()
	closed := v.closed
	evfd := v.evfd
	v.mu.Unlock()
	if closed {
		return errs.ErrClosed
	}
	h := v.hello
	_, _, err := c.WriteMsgUnix(h.encode(), unix.UnixRights(own.mem.FD(), v.page.FD(), evfd), nil)
	return plain(err)
}

func hear(c *net.UnixConn, pid int) (*peer, error) {
	var b [helloBytes + 1]byte
	var oob [128]byte
	n, on, _, _, err := c.ReadMsgUnix(b[:], oob[:])
	fds := rightsOf(oob[:on])
	if err != nil {
		closeAll(fds)
		return nil, plain(err)
	}
	if n == 0 {
		closeAll(fds)
		return nil, errs.ErrPeerLost
	}
	p, err := meet(b[:n], fds, pid)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Probe implements van.Prober: nil when somebody of this machine and user has listened at addr.
func (v *node) Probe(addr string) error {
	path, err := v.split(addr)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Errorf("its socket %s is not to be seen from here, as in another container: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s is no socket of this user: %w", path, errs.ErrNotSupported)
	}
	return nil
}

// Dial implements van.Van.
func (v *node) Dial(ctx context.Context, addr string) (van.Endpoint, error) {
	began := time.Now()
	fail := func(err error) (van.Endpoint, error) {
		return nil, &errs.OpError{Op: "dial", Van: name, Peer: addr, Err: err}
	}
	path, err := v.split(addr)
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(v.ctx, cancel)()
	e, err := v.connect(ctx, path)
	switch {
	case err == nil:
		e.name = path
		if err := v.add(e, false); err != nil {
			return fail(err)
		}
		return e.face(), nil
	case v.ctx.Err() != nil:
		return fail(errs.ErrClosed)
	case ctx.Err() != nil:
		return fail(fmt.Errorf("gave up after %v: %w (last cause: %w)", time.Since(began).Round(time.Millisecond), context.Cause(ctx), err))
	}
	return fail(err)
}

// connect tries while nobody listens.
func (v *node) connect(ctx context.Context, path string) (*endpoint, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		e, err := v.attempt(ctx, path)
		if err == nil || !absent(err) {
			return e, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, err
		}
	}
}

// absent finds errors that go away when somebody listens, or listens with more vigour.
func absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EAGAIN) ||
		errors.Is(err, errs.ErrPeerLost) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

func (v *node) attempt(ctx context.Context, path string) (*endpoint, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, socketType, path)
	if err != nil {
		return nil, plain(err)
	}
	c := conn.(*net.UnixConn)
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	return v.greet(c, true, time.Now().Add(helloTime))
}
