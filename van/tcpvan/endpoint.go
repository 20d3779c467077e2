package tcpvan

import (
	"container/list"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van/parts"
)

// endpoint is one side of a connection: its rails, what goes out and what comes in.
type endpoint struct {
	v         *tcpVan
	peer      string
	rails     []*conn
	threshold int // bytes of payload from which it is cut over the rails
	parts.UserValue

	state   atomic.Uint32 // bits below
	w       writer
	rd      reader
	credits *parts.Credits // nil without buffers

	noted     atomic.Bool // in the list of tcpVan.noted
	nextNoted *endpoint
	unwatched bool // not in the epoll set; written by Poll and Arm under tcpVan.mu

	// Owned by Poll.
	queued       bool          // in poller.queue
	visit        *list.Element // of poller.visitors
	since        time.Time     // it was accepted
	hotMoves     int           // moves since it became hot, or was put back into the epoll set
	unannounced  bool          // accepted, but not announced
	cause        error         // of the loss
	lost         bool          // EventLost is due, or was reported
	lossReported bool          // as EventLost
}

// Bits of endpoint.state.
const (
	reading = 1 << iota // Poll may be writing to placed memory
	writing             // a writer may be using the sockets
	ended               // nothing begins to read or write any more
	closed              // by this side
)

// writer sends the messages of an endpoint. It is one goroutine's turn at a time to write.
type writer struct {
	ep       *endpoint
	out      outbox
	turn     atomic.Int32 // 0: nobody writes; else 1 and the wishes that came meanwhile
	sendErr  atomic.Pointer[error]
	more     atomic.Bool  // the writer stopped although the sockets may take more
	bypassed atomic.Int64 // payload of large messages that went around the outbox since Poll last looked
}

// conn is one socket of an endpoint.
type conn struct {
	fd      int
	slot    int // in pollSet.watched
	ep      *endpoint
	blocked atomic.Bool   // the socket takes nothing; an event tells when it does
	room    atomic.Uint32 // counts those events
	polled  atomic.Bool   // EPOLLOUT is asked for

	// Owned by Poll.
	readable bool // there may be something to read
	hup      bool // the peer will send no more, or an error waits
}

func (v *tcpVan) newEndpoint(fds []int, threshold int, peer string) *endpoint {
	ep := v.bareEndpoint(fds, threshold, peer)
	ep.allocate()
	return ep
}

// bareEndpoint makes an endpoint without buffers, whose Send accepts nothing.
func (v *tcpVan) bareEndpoint(fds []int, threshold int, peer string) *endpoint {
	ep := &endpoint{v: v, peer: peer, threshold: threshold}
	ep.w.ep, ep.rd.ep = ep, ep
	for _, fd := range fds {
		ep.rails = append(ep.rails, &conn{fd: fd, ep: ep})
	}
	return ep
}

// allocate allocates the buffers, before the endpoint is known to anybody.
func (ep *endpoint) allocate() {
	ep.w.out.init(ep.v.opts.SendQueue, len(ep.rails), ep.threshold)
	ep.rd.init(ep.v.opts.SmallBytes, len(ep.rails))
	ep.credits = parts.NewCredits(ep.v.opts.Credits, ep.note)
}

// freeBuffers releases what an ended endpoint receives with, so that a caller that keeps the endpoint keeps no buffers.
func (ep *endpoint) freeBuffers() {
	ep.rd.buf, ep.rd.slot, ep.credits = nil, nil, nil
}

// Peer implements van.Endpoint. Concurrent.
func (ep *endpoint) Peer() string { return ep.peer }

// endError is what Send returns when the endpoint has ended.
func (ep *endpoint) endError() error {
	err := stepvan.ErrPeerLost
	if ep.state.Load()&closed != 0 {
		err = stepvan.ErrClosed
	}
	return ep.fault("send", err)
}

// fault gives err the context of this endpoint.
func (ep *endpoint) fault(op string, err error) error {
	return &stepvan.OpError{Op: op, Van: name, Peer: ep.peer, Err: err}
}

// blocked reports whether no rail takes anything, as far as is known.
func (ep *endpoint) blocked() bool {
	for _, c := range ep.rails {
		if !c.blocked.Load() {
			return false
		}
	}
	return true
}

// note makes the next Poll look at the endpoint, and wakes the driver that sleeps on FD. Concurrent.
func (ep *endpoint) note() {
	v := ep.v
	if ep.noted.CompareAndSwap(false, true) {
		ep.nextNoted = v.noted.Load()
		for !v.noted.CompareAndSwap(ep.nextNoted, ep) {
			ep.nextNoted = v.noted.Load()
		}
	}
	v.wake()
}

// enter begins a stretch in which this goroutine uses the sockets and the
// memory of the endpoint, unless the endpoint has ended.
func (ep *endpoint) enter(bit uint32) bool {
	if ep.state.Or(bit)&ended != 0 {
		ep.leave(bit)
		return false
	}
	return true
}

func (ep *endpoint) leave(bit uint32) { ep.state.And(^bit) }

// Close implements van.Endpoint. When it returns, nothing of the van touches the memory that
// the Placer named.
func (ep *endpoint) Close() error {
	if ep.state.Or(closed)&closed == 0 {
		ep.end()
	}
	return nil
}

// end stops all traffic, frees the sockets and fails what is not sent. Not
// between enter and leave of the same goroutine.
func (ep *endpoint) end() {
	ep.w.out.seal()
	if ep.state.Or(ended)&ended == 0 {
		ep.await(reading | writing)
		ep.freeBuffers()
		ep.v.leave(ep)
		ep.w.pump()
		ep.note()
		return
	}
	ep.await(reading | writing)
}

// await waits for stretches of other goroutines, which are short: none of them blocks.
func (ep *endpoint) await(bits uint32) {
	for ep.state.Load()&bits != 0 {
		runtime.Gosched()
	}
}

// shutRefuse tells a peer of another version which one this is, as far as that is possible at once.
func (w *writer) shutRefuse() {
	if w.out.pending() || !w.turn.CompareAndSwap(0, 1) {
		return
	}
	if w.ep.enter(writing) {
		w.refuse()
		w.ep.leave(writing)
	}
	w.endTurn(1)
}

func (w *writer) refuse() {
	var b [wire.HeaderSize]byte
	h := wire.Header{Kind: wire.KindRefuse}
	h.Encode(b[:], nil)
	fd := w.ep.rails[0].fd
	_, _ = sys.Send(fd, b[:])
	_ = unix.Shutdown(fd, unix.SHUT_WR)
	// Unread bytes would turn the close into a reset, which may overtake the refusal.
	for range 64 {
		if n, e := sys.Recv(fd, w.ep.v.poller.scratch, 0); n <= 0 || e != 0 {
			return
		}
	}
}
