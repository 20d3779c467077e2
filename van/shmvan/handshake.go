package shmvan

import (
	"context"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/sys"
)

// handshake exchanges the hellos, the dialer's first, and makes the endpoint, which has a descriptor of its own. It
// ends with ctx, and closes c.
func (v *shmVan) handshake(ctx context.Context, c *net.UnixConn, dialer bool) (*endpoint, error) {
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })()
	var own *shm.Memory
	var p *peer
	send := func() (err error) {
		if own, err = shm.CreateOneWriter("stepvan:ring", fileBytes(v.opt.RingBytes, v.opt.slots())); err != nil {
			return err
		}
		return v.sendHello(c, own)
	}
	receive := func() error {
		id, err := identify(c)
		if err == nil {
			p, err = receiveHello(c, id)
		}
		return err
	}
	sock := -1
	duplicate := func() (err error) {
		sock, err = sys.Duplicate(c)
		return err
	}
	steps := []func() error{receive, send, duplicate}
	if dialer {
		steps = []func() error{send, receive, duplicate}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			if own != nil {
				_ = own.Close()
			}
			if p != nil {
				if !dialer && p.hello.isOtherVersion() {
					_, _ = c.Write(new(hello).encode()) // without this the peer would take the end for one that passes
				}
				p.close()
			}
			return nil, err
		}
	}
	return v.newEndpoint(sock, own, p), nil
}

func (v *shmVan) sendHello(c *net.UnixConn, own *shm.Memory) error {
	if v.ctx.Err() != nil {
		return stepvan.ErrClosed
	}
	_, _, err := c.WriteMsgUnix(v.hello.encode(), unix.UnixRights(own.FD(), v.page.mem.FD()), nil)
	return netCause(err)
}

// receiveHello takes the hello of the peer, whose process is id.
func receiveHello(c *net.UnixConn, id identity) (*peer, error) {
	var b [helloBytes + 1]byte
	var oob [128]byte
	n, on, _, _, err := c.ReadMsgUnix(b[:], oob[:])
	fds := sys.Rights(oob[:on])
	if err == nil && n > 0 {
		return newPeer(b[:n], fds, id)
	}
	sys.CloseAll(fds)
	id.close()
	if err == nil {
		err = stepvan.ErrPeerLost
	}
	return nil, netCause(err)
}
