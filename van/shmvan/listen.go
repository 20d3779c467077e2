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
)

const (
	helloTime  = 10 * time.Second       // for a peer that connected to introduce itself
	maxPause   = 100 * time.Millisecond // between attempts to dial, or to accept
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
	pending := make(chan struct{}, l.v.opt.Pending)
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
		case pending <- struct{}{}:
		case <-l.v.ctx.Done():
			_ = c.Close()
			return
		}
		l.v.work.Go(func() {
			defer func() { <-pending }()
			l.v.admit(c)
		})
	}
}

// admit exchanges hellos with a peer that connected. It closes the connection of one that fails. Only a peer of another
// version gets an answer, which tells the version of this side.
func (v *shmVan) admit(c *net.UnixConn) {
	ctx, cancel := context.WithTimeout(v.ctx, helloTime)
	defer cancel()
	e, err := v.handshake(ctx, c, false)
	if err == nil {
		e.unannounced = true
		err = v.add(e)
	}
	v.opt.reportStarved(err)
}

// reportStarved calls Starved if err says that descriptors have run out.
func (o *Options) reportStarved(err error) {
	if o.Starved != nil && (errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)) {
		o.Starved(&stepvan.OpError{Op: "accept", Van: name, Err: errs.Descriptors(err)})
	}
}
