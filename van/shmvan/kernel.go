package shmvan

import (
	crand "crypto/rand"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/shm"
)

// sleepPage is the page of a van that its peers map for reading: it tells them whether the van sleeps.
type sleepPage struct {
	mem    *shm.Memory
	asleep *atomic.Uint64
	armed  atomic.Bool
	sleeps uint64 // number of the last sleep. The poller's
}

// open makes the page, with the nonce of h.
func (p *sleepPage) open(h *hello, o *Options) (err error) {
	if p.mem, err = shm.CreateOneWriter("stepvan:van", pageBytes); err != nil {
		return err
	}
	page := p.mem.Bytes()
	p.asleep = shm.Word64(page, offAsleep)
	nonce := page[offNonce : offNonce+len(h.nonce)]
	_, _ = crand.Read(nonce) // never fails
	copy(h.nonce[:], nonce)
	if !o.NoForeign {
		h.at = uint64(uintptr(unsafe.Pointer(&nonce[0])))
	}
	return nil
}

func (p *sleepPage) arm() {
	p.sleeps += 2
	p.armed.Store(true)
	p.asleep.Store(p.sleeps - 1)
}

func (p *sleepPage) disarm() {
	p.armed.Store(false)
	p.asleep.Store(p.sleeps)
}

func (p *sleepPage) close() {
	if p.mem != nil {
		p.asleep = new(atomic.Uint64)
		_ = p.mem.Close()
	}
}

// kernelEvents is the epoll set of a van, with the eventfd that wakes its poller. Guarded by shmVan.mu, except change.
type kernelEvents struct {
	epoll, event int                 // -1 once closed
	endpoints    map[int32]*endpoint // by descriptor
}

func (k *kernelEvents) open() (err error) {
	if k.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if k.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	return k.add(k.event, unix.EPOLLIN|edgeTriggered)
}

// edgeTriggered has the kernel report each edge once, so nothing needs to be read.
const edgeTriggered = unix.EPOLLET & (1<<32 - 1)

func (k *kernelEvents) add(fd int, events uint32) error {
	return unix.EpollCtl(k.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// watch adds the descriptors of an endpoint.
func (k *kernelEvents) watch(e *endpoint) error {
	sock, pidfd := e.conn.sock, e.conn.peer.pidfd
	err := k.add(sock, unix.EPOLLIN|unix.EPOLLRDHUP)
	if err == nil && pidfd >= 0 {
		err = k.add(pidfd, unix.EPOLLIN|edgeTriggered)
	}
	if err != nil {
		return err
	}
	k.endpoints[int32(sock)] = e
	if pidfd >= 0 {
		k.endpoints[int32(pidfd)] = e
	}
	return nil
}

// change changes what the kernel reports of a descriptor. Poller only.
func (k *kernelEvents) change(how, fd int, events uint32) {
	_ = unix.EpollCtl(k.epoll, how, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// wait reads up to len(events) events without blocking.
func (k *kernelEvents) wait(events []unix.EpollEvent) int {
	for {
		n, err := unix.EpollWait(k.epoll, events, 0)
		if err != unix.EINTR {
			return max(n, 0)
		}
	}
}

func (k *kernelEvents) wake() {
	if k.event >= 0 {
		_, _ = unix.Write(k.event, eventOne[:])
	}
}

var eventOne = [8]byte{1}

func (k *kernelEvents) close() {
	for _, fd := range []*int{&k.epoll, &k.event} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}
