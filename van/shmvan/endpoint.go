package shmvan

import (
	"fmt"
	"io"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/van"
)

// ownFile is this side's file of one connection.
type ownFile struct {
	mem  *shm.Memory
	edge shm.Edge
}

func newOwnFile(ring, slots int) (*ownFile, error) {
	mem, err := shm.Publish("stepvan:ring", fileBytes(ring, slots))
	if err != nil {
		return nil, err
	}
	id, err := shm.Identity(mem.FD())
	if err != nil {
		_ = mem.Close()
		return nil, err
	}
	return &ownFile{mem, shm.EdgeOf(id)}, nil
}

func (o *ownFile) close() { _ = o.mem.Close() }

// States of an endpoint.
const (
	stateOpen   uint32 = iota
	stateLost          // the peer is gone, or not to be trusted
	stateClosed        // by this side
)

// endpoint is one side of a connection.
type endpoint struct {
	v          *shmVan
	tx         sendSide
	rx         receiveSide
	pm         peerMemory
	name       string
	own        *ownFile
	peer       *peer
	peerWords  words
	closing    *atomic.Uint64 // own control word
	asleep     *atomic.Uint64 // word of the peer's van
	woken      atomic.Uint64  // the sleep of the peer from which this side has woken it
	user       atomic.Pointer[any]
	state      atomic.Uint32
	gone       atomic.Bool // the kernel says that the peer has released everything
	sock       int         // -1 once closed; guarded by tx.mu
	watchedPid int

	// Only Poll uses these.
	born     uint64 // the Poll that reported the acceptance
	cause    error  // of the loss
	reported bool   // EventLost
	detached bool   // EventDetached
}

func (v *shmVan) newEndpoint(sock int, o *ownFile, p *peer) *endpoint {
	e := &endpoint{v: v, sock: sock, own: o, peer: p, watchedPid: p.pidfd, name: fmt.Sprintf("pid %d", p.hello.pid)}
	mine, theirs := wordsOf(o.mem.Bytes(), v.opt.RingBytes), wordsOf(p.file.Bytes(), int(p.hello.ring))
	e.closing, e.peerWords = mine.closed, theirs
	e.asleep = shm.Word64(p.page.Bytes(), offAsleep)
	e.pm.e = e
	e.pm.table = tableOf(o.mem.Bytes(), v.opt.RingBytes, v.opt.slots())
	e.pm.peerTable = tableOf(p.file.Bytes(), int(p.hello.ring), int(p.hello.slots))
	e.pm.claims = make([]atomic.Pointer[claim], min(e.pm.table.slots, e.pm.peerTable.slots))
	e.tx.e, e.tx.mapped = e, true
	e.tx.out = producer{own: mine, peer: theirs, edge: o.edge, slack: v.opt.slack()}
	e.tx.ops.init(v.opt.SendQueue)
	e.rx.e = e
	e.rx.in = consumer{own: mine, peer: theirs, edge: p.edge, lag: p.hello.ring / 64}
	e.rx.credits.init(e, v.opt.Credits)
	e.rx.foreign = !v.opt.NoForeign && p.canRead()
	if e.rx.foreign {
		mine.reads.Store(1)
	}
	return e
}

// public is the endpoint as its callers see it.
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
	for e.rx.copying.Load() {
		runtime.Gosched() // one copy, of a bounded piece
	}
	e.tx.mu.Lock()
	e.announceClose()
	e.tx.mu.Unlock()
	e.v.wake()
	return nil
}

// announceClose tells the peer that this side has ended the connection. mu is held.
func (e *endpoint) announceClose() {
	if e.tx.mapped && e.closing.Load() == 0 {
		e.closing.Store(1)
		e.signalPeer() // no matter whether it sleeps: this happens once
	}
}

// lose ends the connection for a cause that this side has found. Only Poll calls it.
func (e *endpoint) lose(cause error) {
	if e.state.CompareAndSwap(stateOpen, stateLost) {
		e.cause = cause
		e.tx.mu.Lock()
		e.announceClose()
		e.tx.mu.Unlock()
	}
}

var errHungUp = fmt.Errorf("%w: closed by the peer: %w", stepvan.ErrPeerLost, io.EOF)

// failure is the error of an operation whose connection has ended.
func (e *endpoint) failure(op string) error {
	cause := stepvan.ErrPeerLost
	if e.state.Load() == stateClosed {
		cause = stepvan.ErrClosed
	}
	return &stepvan.OpError{Op: op, Van: name, Peer: e.name, Err: cause}
}

// releaseMemory unmaps the files of both sides and tells the peer. It does so once, after the end of the connection, when
// the program holds no view. It reports whether that is done. Poll calls it, or Close of the van when Poll has ended.
func (e *endpoint) releaseMemory() bool {
	e.tx.mu.Lock()
	defer e.tx.mu.Unlock()
	if !e.tx.mapped || e.pm.views.Load() > 0 {
		return !e.tx.mapped
	}
	e.tx.mapped = false
	e.rx.incoming.stop()
	e.pm.mu.Lock()
	e.pm.dropClaims(nil)
	for _, f := range e.pm.files {
		f.drop()
	}
	e.pm.files = nil
	e.pm.mu.Unlock()
	e.v.unwatch(e.watchedPid, e)
	e.own.close()
	e.peer.release()
	if e.v.isClosed() || e.gone.Load() || e.v.opt.TwoSided {
		e.closeSocket()
	} else {
		_ = unix.Shutdown(e.sock, unix.SHUT_WR)
	}
	return true
}

// closeSocket closes the socket. mu is held.
func (e *endpoint) closeSocket() {
	if e.sock >= 0 {
		e.v.unwatch(e.sock, e)
		_ = unix.Close(e.sock)
		e.sock = -1
	}
}

// closeWithVan releases an endpoint when its van is closed, since nobody may call Poll again. It does not wait until the
// peer has released its memory.
func (e *endpoint) closeWithVan() {
	if e.peerIsDone() {
		e.gone.Store(true)
	}
	if e.releaseMemory() {
		e.tx.mu.Lock()
		e.closeSocket()
		e.tx.mu.Unlock()
	}
}

// peerIsDone reports whether the socket shows that the peer has released its memory.
func (e *endpoint) peerIsDone() bool {
	e.tx.mu.Lock()
	defer e.tx.mu.Unlock()
	if e.sock < 0 {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(e.sock), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) != 0
}

// discard ends an endpoint that Poll does not know.
func (e *endpoint) discard() {
	e.state.Store(stateClosed)
	e.tx.mu.Lock()
	e.announceClose()
	e.tx.mu.Unlock()
	e.releaseMemory()
	e.tx.mu.Lock()
	e.closeSocket()
	e.tx.mu.Unlock()
}

// wakePeer wakes the peer if it sleeps, once for each sleep. Any goroutine may call it while the peer's page is mapped.
func (e *endpoint) wakePeer() {
	if s := e.asleep.Load(); s&1 != 0 && e.woken.Load() != s {
		e.woken.Store(s)
		e.signalPeer()
	}
}
