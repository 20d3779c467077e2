package shmvan

import (
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/sys"
)

// kernelEvents is what the kernel tells a van of its endpoints. Guarded by shmVan.mu, except the epoll set, where Wait
// and changes may be concurrent.
type kernelEvents struct {
	epoll     sys.Epoll
	endpoints map[int32]*endpoint // by descriptor
}

// watch adds the descriptors of an endpoint.
func (k *kernelEvents) watch(e *endpoint) error {
	if err := k.add(e.conn.sock, unix.EPOLLIN|unix.EPOLLRDHUP, e); err != nil {
		return err
	}
	if pidfd := e.conn.peer.pidfd; pidfd >= 0 {
		return k.add(pidfd, unix.EPOLLIN|sys.EdgeTriggered, e)
	}
	return nil
}

func (k *kernelEvents) add(fd int, events uint32, e *endpoint) error {
	err := k.epoll.Add(fd, events, fd)
	if err == nil {
		k.endpoints[int32(fd)] = e
	}
	return err
}
