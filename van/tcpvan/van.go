package tcpvan

import (
	"container/list"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/van"
)

const name = "tcp"

// tcpVan implements van.Van.
type tcpVan struct {
	opts   Options
	caps   van.Caps
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	accepting sync.Mutex // held while connections are accepted, so that Close does not close their descriptors
	pending   pending    // guarded by accepting
	mu        sync.Mutex // leaf; guards the three fields below
	set       pollSet
	endpoints map[*endpoint]struct{}
	listeners []*listener

	armed   atomic.Bool              // the driver may sleep on FD
	noted   atomic.Pointer[endpoint] // that was noted last; the others follow by nextNoted
	polling atomic.Bool
	expiry  alarm // of pending connections
	silence alarm // of checkStalls

	poller poller
}

// poller is the state of Poll and Arm, which have one caller at a time.
type poller struct {
	v            *tcpVan
	events       []van.Event // the caller's
	round        uint64
	queue        []*endpoint
	spare        []*endpoint  // the memory of the queue before
	hot          [2]*endpoint // see queueHot; the one that moved last comes first
	streak       int          // moves of hot[0] since another endpoint moved
	distrust     int          // moves of hot endpoints to come until Poll trusts that no others move
	moves        uint64       // at all endpoints
	moved        bool         // in the last Poll
	misses       int          // calls of Poll in a row without a move; one that asks epoll counts as the first
	asked        uint64       // round of the last call that asked epoll
	kernel       [epollBatch]unix.EpollEvent
	readySet     [epollBatch]watched // what kernel tells of
	iov          []unix.Iovec
	scratch      []byte
	visitors     list.List // accepted and not settled (van.Settler); oldest first
	guarded      bool      // the timer of checkStalls runs
	guardedSince time.Time
}

// pollSet is the epoll set of a van. Guarded by tcpVan.mu.
type pollSet struct {
	epoll   sys.Epoll
	watched []watched // by the number that epoll knows them under
	unused  []int     // numbers that are free
}

// New makes a van. The error is a stepvan.ErrInvalid, or a *stepvan.OpError when descriptors have run out.
func New(o Options) (van.Van, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	v := &tcpVan{
		opts: o, endpoints: map[*endpoint]struct{}{},
		caps: van.Caps{
			Name: name, MaxMeta: int(min(o.Limits.Meta, math.MaxInt32)), MaxPayload: int64(o.Limits.Message),
			MaxSegments: maxSegments, InMessage: int64(o.InMessage),
		},
		poller: poller{iov: make([]unix.Iovec, 0, sys.MaxIovecs), scratch: make([]byte, scratchSize)},
	}
	v.pending.v, v.poller.v = v, v
	v.expiry.wake, v.silence.wake = v.wake, v.wake
	if v.set.epoll, err = sys.OpenEpoll(); err != nil {
		return nil, &stepvan.OpError{Op: "open", Van: name, Err: errs.Descriptors(err)}
	}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	return v, nil
}

// scratchSize is the size of the memory that payload nobody wants is read into.
const scratchSize = 64 << 10

// Caps implements van.Van.
func (v *tcpVan) Caps() van.Caps { return v.caps }

// FD implements van.Van: an epoll descriptor. See the package comment for when it becomes readable.
func (v *tcpVan) FD() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.set.epoll.FD()
}

// Close implements van.Van.
func (v *tcpVan) Close() error {
	v.cancel()
	v.silence.stop()
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
	for _, l := range v.listeners {
		l.close()
	}
	v.set.epoll.Close()
	v.listeners, v.set.watched, v.set.unused = nil, nil, nil
	return nil
}

// add puts a descriptor into the epoll set and returns its slot. mu is held.
func (p *pollSet) add(fd int, w watched, mask uint32) (slot int, err error) {
	if p.epoll.FD() < 0 {
		return 0, stepvan.ErrClosed
	}
	if n := len(p.unused); n > 0 {
		slot, p.unused = p.unused[n-1], p.unused[:n-1]
	} else {
		slot, p.watched = len(p.watched), append(p.watched, nil)
	}
	if err := p.epoll.Add(fd, mask, slot); err != nil {
		p.unused = append(p.unused, slot)
		return 0, errs.Descriptors(err)
	}
	p.watched[slot] = w
	return slot, nil
}

const connMask = unix.EPOLLIN | unix.EPOLLRDHUP | sys.EdgeTriggered

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
	if p.epoll.FD() < 0 {
		return
	}
	// A child process may still hold the socket: closing it would not be enough.
	_ = p.epoll.Remove(fd)
	p.watched[slot] = nil
	p.unused = append(p.unused, slot)
}

// leave frees the sockets of ep.
func (v *tcpVan) leave(ep *endpoint) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unjoin(ep, len(ep.rails))
	delete(v.endpoints, ep)
}

// watch tells epoll which events of c are of interest. An endpoint that epoll does not know (tcpVan.unwatch) is
// looked at by each call of Poll.
func (v *tcpVan) watch(c *conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !c.ep.unwatched {
		_ = v.set.epoll.Change(c.fd, c.interest(), c.slot)
	}
}
