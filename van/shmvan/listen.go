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
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/text"
	"github.com/stepvan/stepvan/van"
)

const (
	helloTime  = 10 * time.Second // for a peer that connected to introduce itself
	minPause   = time.Millisecond // between attempts to dial; doubles
	maxPause   = 100 * time.Millisecond
	socketType = "unixpacket"
	prefix     = "shm."
	anyName    = ":0"
)

// listener accepts connections at a socket.
type listener struct {
	v    *shmVan
	sock *net.UnixListener
	path string
}

// Listen implements van.Van. addr is a name for the socket in Options.Dir, "" or ":0" for one that no
// process has, or an address as Listen returns it.
func (v *shmVan) Listen(addr string) (bound string, err error) {
	path, err := v.listen(addr)
	if err != nil {
		return "", &stepvan.OpError{Op: "listen at " + addr, Van: name, Err: err}
	}
	return v.host.address(path), nil
}

func (v *shmVan) listen(addr string) (string, error) {
	path, err := v.socket(addr)
	if err != nil {
		return "", err
	}
	l, err := listenAt(path)
	if err != nil {
		return "", err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	w := &listener{v: v, sock: l, path: path}
	if v.closed {
		w.close()
		return "", stepvan.ErrClosed
	}
	v.listeners[w] = struct{}{}
	v.work.Go(w.accept)
	return path, nil
}

// listenAt makes a socket in a directory that no other user can enter. It sweeps the directory first.
func listenAt(path string) (*net.UnixListener, error) {
	dir := filepath.Dir(path)
	if err := shm.PrivateDir(dir); err != nil {
		return nil, err
	}
	shm.Sweep(dir)
	defer shm.HoldSweep(dir)()
	short, release, err := shm.SocketPath(path)
	if err != nil {
		return nil, err
	}
	defer release()
	l, err := net.ListenUnix(socketType, &net.UnixAddr{Name: short, Net: socketType})
	if err != nil {
		return nil, netCause(err)
	}
	l.SetUnlinkOnClose(false) // by a path that is good at this moment only
	return l, nil
}

// socket is the path that addr stands for.
func (v *shmVan) socket(addr string) (string, error) {
	switch {
	case addr == "" || addr == anyName:
		return filepath.Join(v.opt.Dir, fmt.Sprintf("%s%d.%016x", prefix, os.Getpid(), rand.Uint64())), nil
	case strings.HasPrefix(addr, string(v.host)+"/"):
		return v.host.path(addr)
	case strings.Trim(addr, nameLetters) != "":
		return "", errs.Invalid("socket name %q: use letters, digits, dots and dashes, or an address that Listen has returned", text.Cut(addr))
	}
	return filepath.Join(v.opt.Dir, addr), nil
}

const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// netCause drops what net says besides the cause.
func netCause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

func (l *listener) close() {
	_ = os.Remove(l.path)
	_ = l.sock.Close()
}

// accept lets peers in until the listener is closed. Each introduces itself on a goroutine of its own.
func (l *listener) accept() {
	guests := make(chan struct{}, l.v.opt.Pending)
	for {
		c, err := l.sock.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptors left, for example: the process may close some
			l.v.opt.reportStarved(netCause(err))
			select {
			case <-time.After(maxPause):
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
			l.v.admit(c)
		})
	}
}

// admit exchanges hellos with a peer that connected. It closes the connection of one that fails, without an answer.
func (v *shmVan) admit(c *net.UnixConn) {
	_ = c.SetDeadline(time.Now().Add(helloTime))
	stop := context.AfterFunc(v.ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	e, err := v.handshake(c, false)
	_ = c.Close() // the endpoint has a descriptor of its own
	if err == nil {
		err = v.add(e, true)
	}
	v.opt.reportStarved(err)
}

// reportStarved calls Starved if err says that descriptors have run out.
func (o *Options) reportStarved(err error) {
	if o.Starved != nil && (errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)) {
		o.Starved(&stepvan.OpError{Op: "accept", Van: name, Err: errs.Descriptors(err)})
	}
}

// handshake exchanges the hellos, the dialer's first, and makes the endpoint. It ends by the connection's deadline.
func (v *shmVan) handshake(c *net.UnixConn, dialer bool) (*endpoint, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, netCause(err)
	}
	var own *ownFile
	var p *peer
	send := func() (err error) {
		if own, err = newOwnFile(v.opt.RingBytes, v.opt.slots()); err != nil {
			return err
		}
		return v.sendHello(c, own)
	}
	receive := func() error {
		id, err := identify(raw)
		if err == nil {
			p, err = receiveHello(c, id)
		}
		return err
	}
	steps := []func() error{receive, send}
	if dialer {
		steps = []func() error{send, receive}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			if own != nil {
				own.close()
			}
			if p != nil {
				p.close()
			}
			return nil, err
		}
	}
	sock := -1
	if e := raw.Control(func(fd uintptr) { sock, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); e != nil || err != nil {
		own.close()
		p.close()
		return nil, errors.Join(e, err)
	}
	return v.newEndpoint(sock, own, p), nil
}

func (v *shmVan) sendHello(c *net.UnixConn, own *ownFile) error {
	if v.isClosed() {
		return stepvan.ErrClosed
	}
	_, _, err := c.WriteMsgUnix(v.hello.encode(), unix.UnixRights(own.mem.FD(), v.page.mem.FD()), nil)
	return netCause(err)
}

// receiveHello takes the hello of the peer, whose process is id.
func receiveHello(c *net.UnixConn, id identity) (*peer, error) {
	var b [helloBytes + 1]byte
	var oob [128]byte
	n, on, _, _, err := c.ReadMsgUnix(b[:], oob[:])
	fds := rightsOf(oob[:on])
	if err == nil && n > 0 {
		return newPeer(b[:n], fds, id)
	}
	closeAll(fds)
	id.close()
	if err == nil {
		err = stepvan.ErrPeerLost
	}
	return nil, netCause(err)
}

// Probe implements van.Prober: nil when a process of this machine and user listens at addr.
func (v *shmVan) Probe(addr string) error {
	path, err := v.host.path(addr)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Errorf("its socket %s cannot be seen from here, as in another container: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a socket of this user: %w", path, stepvan.ErrNotSupported)
	}
	if shm.Abandoned(path) {
		return fmt.Errorf("the process that listened at %s has ended: %w", path, stepvan.ErrPeerLost)
	}
	return nil
}

// Dial implements van.Van.
func (v *shmVan) Dial(ctx context.Context, addr string) (van.Endpoint, error) {
	began := time.Now()
	fail := func(err error) (van.Endpoint, error) {
		return nil, &stepvan.OpError{Op: "dial", Van: name, Peer: addr, Err: err}
	}
	path, err := v.host.path(addr)
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(v.ctx, cancel)()
	e, err := v.dialUntilListening(ctx, path)
	switch {
	case err == nil:
		e.conn.name = path
		if err := v.add(e, false); err != nil {
			return fail(err)
		}
		return e.conn.public, nil
	case v.ctx.Err() != nil:
		return fail(stepvan.ErrClosed)
	case ctx.Err() != nil:
		return fail(fmt.Errorf("%w (last cause: %w)", errs.GaveUp(time.Since(began), context.Cause(ctx)), err))
	}
	return fail(err)
}

// dialUntilListening tries again while no process listens.
func (v *shmVan) dialUntilListening(ctx context.Context, path string) (*endpoint, error) {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		e, err := v.dialOnce(ctx, path)
		if err == nil || !notListening(err) {
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

// notListening finds errors that pass when a process listens at the socket, or accepts faster.
func notListening(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EAGAIN) ||
		errors.Is(err, stepvan.ErrPeerLost) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// dialOnce connects once. The listening process may be stopped: ctx limits the wait for it.
func (v *shmVan) dialOnce(ctx context.Context, path string) (*endpoint, error) {
	short, release, err := shm.SocketPath(path)
	if err != nil {
		return nil, err
	}
	defer release()
	var d net.Dialer
	conn, err := d.DialContext(ctx, socketType, short)
	if err != nil {
		return nil, netCause(err)
	}
	c := conn.(*net.UnixConn)
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	return v.handshake(c, true)
}
