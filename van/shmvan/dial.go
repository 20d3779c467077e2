package shmvan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/van"
)

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
