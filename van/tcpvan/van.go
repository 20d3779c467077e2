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

// tcpVan implements van.Van.
type tcpVan struct {
	opts   Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	accepting sync.Mutex // held while connections are accepted, so that Close does not close their descriptors
	pending   pending    // guarded by accepting
	mu        sync.Mutex // leaf; guards the three fields below
	set       pollSet
	endpoints map[*endpoint]struct{}
	listeners []*listener

	armed     atomic.Bool // the program may sleep on FD
	notesMu   sync.Mutex  // leaf
	notes     []*endpoint
	noteCount atomic.Int32
	polling   atomic.Bool
	expired   atomic.Bool // the timer of pending connections has fired
	guardDue  atomic.Bool // the timer of checkStalls has fired
	guardian  atomic.Pointer[time.Timer]

	poller poller
}

// poller is the state of Poll and Arm, which have one caller at a time.
type poller struct {
	v         *tcpVan
	events    []van.Event // the caller's
	round     uint64
	run, idle []*endpoint // the queue, and the memory of the one before
	spare     []*endpoint // memory of notes
	hot       [2]*endpoint
	alone     int    // moves of hot[0] since another endpoint moved
	strays    int    // counts down from trustAfterMoves since an endpoint moved that was not hot
	touched   uint64 // moves
	moved     bool   // in the last Poll
	misses    int    // calls of Poll in a row without a move
	asked     uint64 // round of the last call that asked epoll
	kernel    [epollBatch]unix.EpollEvent
	readySet  [epollBatch]source
	iov       []unix.Iovec
	scratch   []byte
	newcomers []*endpoint // accepted, EventAccepted is due
	visitors  list.List   // accepted and not settled (van.Settler); oldest first
	guarded   bool        // the timer of checkStalls runs
	turned    time.Time   // since when
}

// pollSet is the epoll set of a van. Guarded by tcpVan.mu.
type pollSet struct {
	epfd    int // -1 after Close
	evfd    int
	sources []source // by the number that epoll knows them under
	unused  []int    // of sources
}

// New makes a van. The error is a stepvan.ErrInvalid, or a *stepvan.OpError when descriptors have run out.
func New(o Options) (van.Van, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	v := &tcpVan{
		opts: o, endpoints: map[*endpoint]struct{}{},
		poller: poller{iov: make([]unix.Iovec, 0, maxIovecs), scratch: make([]byte, scratchSize)},
	}
	v.pending.v, v.poller.v = v, v
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

func (v *tcpVan) open() (err error) {
	if v.set.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll_create: %w%s", err, advice(err))
	}
	if v.set.evfd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		_ = unix.Close(v.set.epfd)
		return fmt.Errorf("eventfd: %w%s", err, advice(err))
	}
	_ = unix.SetNonblock(v.set.epfd, true)
	e := unix.EpollEvent{Events: unix.EPOLLIN | edge, Fd: wakeSlot}
	if err = unix.EpollCtl(v.set.epfd, unix.EPOLL_CTL_ADD, v.set.evfd, &e); err != nil {
		_ = unix.Close(v.set.epfd)
		_ = unix.Close(v.set.evfd)
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// Caps implements van.Van.
func (v *tcpVan) Caps() van.Caps {
	return van.Caps{
		Name:        name,
		MaxMeta:     int(min(v.opts.Limits.Meta, math.MaxInt32)),
		MaxPayload:  int64(v.opts.Limits.Message),
		MaxSegments: maxSegments,
	}
}

// FD implements van.Van: an epoll descriptor. See the package comment for when it becomes readable.
func (v *tcpVan) FD() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.set.epfd
}

// Close implements van.Van.
func (v *tcpVan) Close() error {
	v.cancel()
	if t := v.guardian.Load(); t != nil {
		t.Stop() // it would keep the van in memory
	}
	for ep := v.closeOrNext(); ep != nil; ep = v.closeOrNext() {
		_ = ep.Close()
	}
	return nil
}

// closeOrNext returns an open endpoint. When no endpoint is open it frees all other descriptors and returns nil.
func (v *tcpVan) closeOrNext() *endpoint {
	v.accepting.Lock()
	defer v.accepting.Unlock()
	v.pending.closeAll()
	v.mu.Lock()
	defer v.mu.Unlock()
	for ep := range v.endpoints {
		return ep
	}
	if v.set.epfd < 0 {
		return nil
	}
	for _, l := range v.listeners {
		l.close()
	}
	_ = unix.Close(v.set.epfd)
	_ = unix.Close(v.set.evfd)
	v.set.epfd, v.set.evfd = -1, -1
	v.listeners, v.set.sources, v.set.unused = nil, nil, nil
	return nil
}

// edge makes epoll report changes. EpollEvent.Events is unsigned, unix.EPOLLET is not.
const edge = uint32(1) << 31

// add puts a descriptor into the epoll set and returns its slot. mu is held.
func (p *pollSet) add(fd int, s source, mask uint32) (slot int, err error) {
	if p.epfd < 0 {
		return 0, stepvan.ErrClosed
	}
	slot = len(p.sources)
	if n := len(p.unused); n > 0 {
		slot = p.unused[n-1]
	}
	e := unix.EpollEvent{Events: mask, Fd: int32(slot)}
	if err := unix.EpollCtl(p.epfd, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return 0, fmt.Errorf("epoll_ctl: %w%s", err, advice(err))
	}
	if slot == len(p.sources) {
		p.sources = append(p.sources, s)
	} else {
		p.unused = p.unused[:len(p.unused)-1]
		p.sources[slot] = s
	}
	return slot, nil
}

const connMask = unix.EPOLLIN | unix.EPOLLRDHUP | edge

// join makes ep one of the van's: its sockets go into the epoll set. On error they are closed.
func (v *tcpVan) join(ep *endpoint) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, c := range ep.rails {
		slot, err := v.set.add(c.fd, c, connMask)
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
func (v *tcpVan) unjoin(ep *endpoint, n int) {
	for i, c := range ep.rails {
		if i < n {
			v.set.remove(c.slot, c.fd)
		}
		_ = unix.Close(c.fd)
	}
}

// remove takes a descriptor out of the epoll set. mu is held.
func (p *pollSet) remove(slot, fd int) {
	if p.epfd < 0 {
		return
	}
	// A child process may still hold the socket: closing it would not be enough.
	_ = unix.EpollCtl(p.epfd, unix.EPOLL_CTL_DEL, fd, nil)
	p.sources[slot] = nil
	p.unused = append(p.unused, slot)
}

// leave frees the sockets of ep.
func (v *tcpVan) leave(ep *endpoint) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range ep.rails {
		v.set.remove(c.slot, c.fd)
		_ = unix.Close(c.fd)
	}
	delete(v.endpoints, ep)
}

// watch tells epoll which events of c are of interest. An endpoint that epoll does not know (tcpVan.unwatch) is
// looked at by each call of Poll.
func (v *tcpVan) watch(c *conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.set.epfd >= 0 && !c.ep.unwatched {
		e := c.interest()
		_ = unix.EpollCtl(v.set.epfd, unix.EPOLL_CTL_MOD, c.fd, &e)
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
func (p *pending) expiry(t *time.Timer, d time.Duration) *time.Timer {
	if t != nil {
		t.Reset(d)
		return t
	}
	return time.AfterFunc(d, func() {
		p.v.expired.Store(true)
		p.v.wake()
	})
}
