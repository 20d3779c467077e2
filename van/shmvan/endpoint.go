package shmvan

import (
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/van"
)

// own is this side's file of one connection.
type own struct {
	mem  *shm.Memory
	edge shm.Edge
}

func newOwnFile(ring, slots int) (*own, error) {
	mem, err := shm.Publish("stepvan:ring", fileBytes(ring, slots))
	if err != nil {
		return nil, err
	}
	id, err := shm.Identity(mem.FD())
	if err != nil {
		_ = mem.Close()
		return nil, err
	}
	return &own{mem, shm.EdgeOf(id)}, nil
}

func (o *own) close() { _ = o.mem.Close() }

// States of an endpoint.
const (
	stateOpen   uint32 = iota
	stateLost          // the peer is gone, or not to be trusted
	stateClosed        // by this side
)

// endpoint is one side of a connection.
type endpoint struct {
	v          *shmVan
	sock       int
	name       string
	own        *own
	peer       *peer
	watchedPid int
	asleep     *atomic.Uint64 // the peer's van's word
	closing    *atomic.Uint64 // own control word
	peerWords  words
	foreign    bool // the peer's memory can be read with process_vm_readv
	user       atomic.Pointer[any]
	state      atomic.Uint32
	copying    atomic.Bool // the poller writes to placed memory
	woken      atomic.Uint64
	ops        operations

	// Guarded by mu.
	mu          sync.Mutex
	out         producer
	sourced     uint64 // messages sent whose source the peer reads
	sharedFiles []uint64
	stream      stream
	errands     errands
	segs        []segment
	spare       [1][]byte // of the message that is being sent
	grants      grants
	held        []*peerGrant // of a Send
	mapped      bool         // the peer's and the own file are mapped

	due      atomic.Bool   // stream or errands wait for room
	streamed atomic.Uint64 // streams that are in the ring whole
	drained  atomic.Uint64 // what the peer must have consumed so that there is room behind the last of them
	views    atomic.Int64  // of the peer's memory, with the program
	gone     atomic.Bool   // the kernel says that the peer has let go of everything

	// The poller's.
	in       consumer
	born     uint64
	cause    error // of the loss
	reported bool  // EventLost
	detached bool
	idle     uint32 // steps without a record
	incoming arrival
	credits  credits

	table     table // own
	peerTable table
	claims    []atomic.Pointer[peerGrant] // grants of the peer, by slot
	peerFault atomic.Pointer[error]       // what others than the poller found wrong with the peer

	// Guarded by filesMu.
	filesMu sync.Mutex
	box     socketBuffer
	files   []*peerFile
	unused  []*peerGrant // replaced, perhaps with views out

	replaced atomic.Bool // there are some unused
}

func (v *shmVan) newEndpoint(sock int, o *own, p *peer) *endpoint {
	e := &endpoint{v: v, sock: sock, own: o, peer: p, watchedPid: p.pidfd, mapped: true}
	e.name = fmt.Sprintf("pid %d", p.hello.pid)
	mine, theirs := wordsOf(o.mem.Bytes(), v.opt.RingBytes), wordsOf(p.file.Bytes(), int(p.hello.ring))
	e.table = tableOf(o.mem.Bytes(), v.opt.RingBytes, v.opt.slots())
	e.peerTable = tableOf(p.file.Bytes(), int(p.hello.ring), int(p.hello.slots))
	e.claims = make([]atomic.Pointer[peerGrant], min(e.table.slots, e.peerTable.slots))
	e.closing, e.peerWords = mine.closed, theirs
	e.asleep = shm.Word64(p.page.Bytes(), offAsleep)
	e.out = producer{own: mine, peer: theirs, edge: o.edge, headroom: v.opt.headroom()}
	e.in = consumer{own: mine, peer: theirs, edge: p.edge, reportEvery: p.hello.ring / 64}
	e.ops.init(v.opt.SendQueue)
	e.credits.init(e, v.opt.Credits)
	e.foreign = !v.opt.NoForeign && p.canRead()
	if e.foreign {
		mine.reads.Store(1)
	}
	return e
}

// face is the endpoint as its callers see it.
func (e *endpoint) public() van.Endpoint {
	if e.v.opt.TwoSided {
		return e
	}
	return granter{e}
}

// Peer implements van.Endpoint.
func (e *endpoint) Peer() string { return e.name }

// SetUser implements van.Endpoint. Concurrent.
func (e *endpoint) SetUser(u any) { e.user.Store(&u) }

// User implements van.Endpoint. Concurrent.
func (e *endpoint) User() any {
	if p := e.user.Load(); p != nil {
		return *p
	}
	return nil
}

// Close implements van.Endpoint. It returns when nothing reads or writes memory of this endpoint any more.
func (e *endpoint) Close() error {
	for {
		s := e.state.Load()
		if s == stateClosed {
			break
		}
		if e.state.CompareAndSwap(s, stateClosed) {
			break
		}
	}
	for e.copying.Load() {
		runtime.Gosched() // one copy, of a bounded piece
	}
	e.mu.Lock()
	e.sendClosed()
	e.mu.Unlock()
	e.v.wakePoller()
	return nil
}

// hangUp tells the peer that this side has ended the connection. mu is held.
func (e *endpoint) sendClosed() {
	if e.mapped && e.closing.Load() == 0 {
		e.closing.Store(1)
		e.wake() // no matter whether it sleeps: this happens once
	}
}

// lose ends the connection for a cause that this side has found. Poller only.
func (e *endpoint) lose(cause error) {
	if e.state.CompareAndSwap(stateOpen, stateLost) {
		e.cause = cause
		e.mu.Lock()
		e.sendClosed()
		e.mu.Unlock()
	}
}

var errHungUp = fmt.Errorf("%w: closed by the peer: %w", stepvan.ErrPeerLost, io.EOF)

// fault is why an operation of an ended connection failed.
func (e *endpoint) endedError(op string) error {
	cause := stepvan.ErrPeerLost
	if e.state.Load() == stateClosed {
		cause = stepvan.ErrClosed
	}
	return &stepvan.OpError{Op: op, Van: name, Peer: e.name, Err: cause}
}

// reap lets go of the peer's memory and of the connection's own, once, after the end, when no view is out, and tells the
// peer. It reports whether that has been done. The poller, or whoever comes when there is no poller any more.
func (e *endpoint) unmap() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.mapped || e.views.Load() > 0 {
		return !e.mapped
	}
	e.mapped = false
	e.incoming.stop()
	e.filesMu.Lock()
	e.dropGrants(nil)
	for _, f := range e.files {
		f.drop()
	}
	e.files = nil
	e.filesMu.Unlock()
	e.v.unwatch(e.watchedPid, e)
	e.own.close()
	e.peer.part()
	if e.v.isClosed() || e.gone.Load() || e.v.opt.TwoSided {
		e.closeSocket()
	} else {
		_ = unix.Shutdown(e.sock, unix.SHUT_WR)
	}
	return true
}

// hang closes the socket. mu is held.
func (e *endpoint) closeSocket() {
	if e.sock >= 0 {
		e.v.unwatch(e.sock, e)
		_ = unix.Close(e.sock)
		e.sock = -1
	}
}

// retire is what is done with an endpoint when its van is closed: the poller may never come again. One that
// had let go before waits no longer for its peer to do so.
func (e *endpoint) closeWithVan() {
	if e.peerShutDown() {
		e.gone.Store(true)
	}
	if e.unmap() {
		e.mu.Lock()
		e.closeSocket()
		e.mu.Unlock()
	}
}

// sawEnd reports whether the socket shows that the peer has let go.
func (e *endpoint) peerShutDown() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sock < 0 {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(e.sock), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) != 0
}

// discard ends an endpoint that no poller knows.
func (e *endpoint) discard() {
	e.state.Store(stateClosed)
	e.mu.Lock()
	e.sendClosed()
	e.mu.Unlock()
	e.unmap()
	e.mu.Lock()
	e.closeSocket()
	e.mu.Unlock()
}

// rouse wakes the peer if it sleeps and was not woken from this sleep yet. Any goroutine that knows the page to be mapped.
func (e *endpoint) wakeIfAsleep() {
	if s := e.asleep.Load(); s&1 != 0 && e.woken.Load() != s {
		e.woken.Store(s)
		e.wake()
	}
}
