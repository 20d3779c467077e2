package shmvan

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/parts"
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
	e, err := v.dial(ctx, addr)
	if err != nil {
		return nil, &stepvan.OpError{Op: "dial", Van: name, Peer: addr, Err: err}
	}
	return e.conn.public, nil
}

func (v *shmVan) dial(ctx context.Context, addr string) (*endpoint, error) {
	path, err := v.host.path(addr)
	if err != nil {
		return nil, err
	}
	retry := parts.Retry{MayPass: notListening, First: time.Millisecond, Last: maxPause}
	e, err := parts.Dial(ctx, v.ctx, retry, func(ctx context.Context) (*endpoint, error) { return v.dialOnce(ctx, path) })
	if err != nil {
		return nil, err
	}
	e.conn.name = path
	return e, v.add(e)
}

// notListening finds errors that pass when a process listens at the socket, or accepts faster.
func notListening(err error) bool {
	return isOneOf(err, unix.ENOENT, unix.ECONNREFUSED, unix.EAGAIN, unix.ECONNRESET, unix.EPIPE, stepvan.ErrPeerLost)
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
	return v.handshake(ctx, conn.(*net.UnixConn), true)
}
