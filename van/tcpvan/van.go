package tcpvan

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

const name = "tcp"

// tcp is the van.
type tcp struct {
	opts   Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	door      sync.Mutex // held while connections are accepted, so that Close does not pull their descriptors away
	pending   pending    // guarded by door
	mu        sync.Mutex // leaf
	epfd      int        // -1 after Close
	evfd      int
	sources   []source // by the number that epoll knows them under
	unused    []int    // of sources
	endpoints map[*endpoint]struct{}
	listeners []*listener

	armed     atomic.Bool // somebody may sleep on FD
	notesMu   sync.Mutex  // leaf
	notes     []*endpoint
	noteCount atomic.Int32
	polling   atomic.Bool
	expired   atomic.Bool // the timer of pending connections went off
	guardDue  atomic.Bool // that of checkStalls did
	guardian  atomic.Pointer[time.Timer]

	// Owned by Poll.
	events    []van.Event // the caller's
	round     uint64
	run, idle []*endpoint // the queue, and the memory of the one before
	spare     []*endpoint // memory of notes
	hot       [2]*endpoint
	alone     int    // moves of hot[0] since another endpoint moved
	strays    int    // counts down from straying since an endpoint moved that was not hot
	touched   uint64 // moves
	moved     bool   // in the last Poll
	misses    int    // calls of Poll in a row without a move
	asked     uint64 // round of the last call that asked epoll
	kernel    [epollBatch]unix.EpollEvent
	readySet  [epollBatch]source
	iov       []unix.Iovec
	scratch   []byte
	newcomers []*endpoint // accepted, EventAccepted is due
	visitors  list.List   // accepted, and nobody has said that they are known; oldest first
	guarded   bool        // the timer of checkStalls runs
	turned    time.Time   // since when
}

// New makes a van. The error is a stepvan.ErrInvalid, or a *stepvan.OpError when descriptors have run out.
func New(o Options) (van.Van, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	v := &tcp{
		opts: o, endpoints: map[*endpoint]struct{}{},
		iov: make([]unix.Iovec, 0, maxIovecs), scratch: make([]byte, scratchSize),
	}
	v.pending.v = v
	if err := v.open(); err != nil {
		return nil, &stepvan.OpError{Op: "open", Van: name, Err: err}
	}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	return v, nil
}

// scratchSize is the size of the memory that payload nobody wants is read into.
const scratchSize = 64 << 10

// wakeSlot is what epoll knows the eventfd under.
const wakeSlot = -1

func (v *tcp) open() (err error) {
	if v.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll_create: %w%s", err, advice(err))
	}
	if v.evfd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		_ = unix.Close(v.epfd)
		return fmt.Errorf("eventfd: %w%s", err, advice(err))
	}
	_ = unix.SetNonblock(v.epfd, true)
	e := unix.EpollEvent{Events: unix.EPOLLIN | edge, Fd: wakeSlot}
	if err = unix.EpollCtl(v.epfd, unix.EPOLL_CTL_ADD, v.evfd, &e); err != nil {
		_ = unix.Close(v.epfd)
		_ = unix.Close(v.evfd)
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// Caps implements van.Van.
func (v *tcp) Caps() van.Caps {
	return van.Caps{
		Name:        name,
		MaxMeta:     int(min(v.opts.Limits.Meta, math.MaxInt32)),
		MaxPayload:  int64(v.opts.Limits.Message),
		MaxSegments: maxSegments,
	}
}

// FD implements van.Van: an epoll descriptor. See the package comment for when it becomes readable.
func (v *tcp) FD() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.epfd
}

// Close implements van.Van.
func (v *tcp) Close() error {
	v.cancel()
	if t := v.guardian.Load(); t != nil {
		t.Stop() // it would keep the van in memory
	}
	for ep := v.closeOrNext(); ep != nil; ep = v.closeOrNext() {
		_ = ep.Close()
	}
	return nil
}

// closeOrNext returns an open endpoint. When there is none it frees all other descriptors.
func (v *tcp) closeOrNext() *endpoint {
	v.door.Lock()
	defer v.door.Unlock()
	v.pending.closeAll()
	v.mu.Lock()
	defer v.mu.Unlock()
	for ep := range v.endpoints {
		return ep
	}
	if v.epfd < 0 {
		return nil
	}
	for _, l := range v.listeners {
		l.close()
	}
	_ = unix.Close(v.epfd)
	_ = unix.Close(v.evfd)
	v.epfd, v.evfd = -1, -1
	v.listeners, v.sources, v.unused = nil, nil, nil
	return nil
}

// edge makes epoll report changes. EpollEvent.Events is unsigned, unix.EPOLLET is not.
const edge = uint32(1) << 31

// add puts a descriptor into the epoll set and returns its slot. mu is held.
func (v *tcp) add(fd int, s source, mask uint32) (slot int, err error) {
	if v.epfd < 0 {
		return 0, stepvan.ErrClosed
	}
	slot = len(v.sources)
	if n := len(v.unused); n > 0 {
		slot = v.unused[n-1]
	}
	e := unix.EpollEvent{Events: mask, Fd: int32(slot)}
	if err := unix.EpollCtl(v.epfd, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return 0, fmt.Errorf("epoll_ctl: %w%s", err, advice(err))
	}
	if slot == len(v.sources) {
		v.sources = append(v.sources, s)
	} else {
		v.unused = v.unused[:len(v.unused)-1]
		v.sources[slot] = s
	}
	return slot, nil
}

const connMask = unix.EPOLLIN | unix.EPOLLRDHUP | edge

// join makes ep one of the van's: its sockets go into the epoll set. On error they are closed.
func (v *tcp) join(ep *endpoint) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, c := range ep.rails {
		slot, err := v.add(c.fd, c, connMask)
		if err != nil {
			v.unjoin(ep, i)
			return err
		}
		c.slot = slot
	}
	v.endpoints[ep] = struct{}{}
	return nil
}

// unjoin undoes join, of which the first n rails succeeded. mu is held.
func (v *tcp) unjoin(ep *endpoint, n int) {
	for i, c := range ep.rails {
		if i < n {
			v.remove(c.slot, c.fd)
		}
		_ = unix.Close(c.fd)
	}
}

// remove takes a descriptor out of the epoll set. mu is held.
func (v *tcp) remove(slot, fd int) {
	if v.epfd < 0 {
		return
	}
	// A child process may still hold the socket: closing it would not be enough.
	_ = unix.EpollCtl(v.epfd, unix.EPOLL_CTL_DEL, fd, nil)
	v.sources[slot] = nil
	v.unused = append(v.unused, slot)
}

// leave frees the sockets of ep.
func (v *tcp) leave(ep *endpoint) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range ep.rails {
		v.remove(c.slot, c.fd)
		_ = unix.Close(c.fd)
	}
	delete(v.endpoints, ep)
}

// watch tells epoll which events of c are of interest. An endpoint that epoll does not know (tcp.unwatch) is
// looked at by each call of Poll.
func (v *tcp) watch(c *conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.epfd >= 0 && !c.ep.unwatched {
		e := c.interest()
		_ = unix.EpollCtl(v.epfd, unix.EPOLL_CTL_MOD, c.fd, &e)
	}
}

// advice says what to do about an errno that has a remedy.
func advice(err error) string {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return ""
	}
	switch errno {
	case unix.EMFILE, unix.ENFILE:
		return " (raise the limit of open files: ulimit -n)"
	case unix.EADDRINUSE:
		return " (choose another port or stop the process that holds it)"
	case unix.EADDRNOTAVAIL:
		return " (no interface of this machine has that address)"
	case unix.EACCES, unix.EPERM:
		return " (not allowed for this user; ports below 1024 need more rights)"
	}
	return ""
}

// expiry arms the timer of pending connections. Poll only.
func (v *tcp) expiry(t *time.Timer, d time.Duration) *time.Timer {
	if t != nil {
		t.Reset(d)
		return t
	}
	return time.AfterFunc(d, func() {
		v.expired.Store(true)
		v.wake()
	})
}
