package shmvan

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/van"
)

// States of a connection.
const (
	stateOpen   uint32 = iota
	stateLost          // the peer is gone, or this side does not trust it
	stateClosed        // by this side
)

// connection is the lifecycle of an endpoint, and what its other parts share: the socket and the files of both sides.
type connection struct {
	van        *shmVan
	endpoint   *endpoint
	public     van.Endpoint // the endpoint as the program sees it
	name       string
	sock       int         // -1 once closed
	own        *shm.Memory // this side's file
	peer       *peer
	watchedPid int
	asleep     *atomic.Uint64 // the word of the peer's van
	ownWords   words
	peerWords  words
	state      atomic.Uint32
	woken      atomic.Uint64         // the last sleep of the peer that this side has ended
	peerGone   atomic.Bool           // the kernel says that the peer holds nothing of this connection any more
	peerFault  atomic.Pointer[error] // what other goroutines than the poller found wrong with the peer
	cause      error                 // of the loss. The poller's

	mu     sync.Mutex // guards the sender and the grants, too
	mapped bool       // the files of both sides are mapped
}

// usable is nil while something can be sent.
func (c *connection) usable() error {
	switch c.state.Load() {
	case stateClosed:
		return stepvan.ErrClosed
	case stateLost:
		return stepvan.ErrPeerLost
	}
	return nil
}

// endedError is why an operation of an ended connection failed.
func (c *connection) endedError(op string) error {
	return &stepvan.OpError{Op: op, Van: name, Peer: c.name, Err: c.usable()}
}

// lose ends the connection for a cause that this side has found. Poller only.
func (c *connection) lose(cause error) {
	if c.state.CompareAndSwap(stateOpen, stateLost) {
		c.cause = cause
		c.sendClosed()
	}
}

// reportFault has the poller end the connection if err says that the peer broke the protocol. Any goroutine.
func (c *connection) reportFault(err error) {
	var broken *stepvan.ProtocolError
	if errors.As(err, &broken) {
		c.peerFault.CompareAndSwap(nil, &err)
		c.van.wakePoller()
	}
}

// sendClosed tells the peer that this side has ended the connection.
func (c *connection) sendClosed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendClosedLocked()
}

// sendClosedLocked is sendClosed with mu held.
func (c *connection) sendClosedLocked() {
	if c.mapped && c.ownWords.closed.Load() == 0 {
		c.ownWords.closed.Store(1)
		c.wakePeer() // no matter whether it sleeps: this happens once
	}
}

// wakePeer makes the peer's FD readable. A full socket makes it readable as well, so an error does not matter.
// The memory of the connection must be mapped: the socket is open at least as long.
func (c *connection) wakePeer() {
	_, _ = sys.Send(c.sock, wakeByte[:])
}

// wakeIfAsleep wakes the peer if it sleeps and this side has not ended this sleep yet.
// Any goroutine that knows the page to be mapped.
func (c *connection) wakeIfAsleep() {
	if s := c.asleep.Load(); s&1 != 0 && c.woken.Load() != s {
		c.woken.Store(s)
		c.wakePeer()
	}
}

// peerEnded reports whether the peer has closed the connection, or is gone. The files must be mapped.
func (c *connection) peerEnded() bool { return c.peerGone.Load() || c.peerWords.closed.Load() != 0 }

func (c *connection) stillMapped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mapped
}

// unmap releases the files of both sides, and tells the peer through the socket. mu is held.
func (c *connection) unmap() {
	c.mapped = false
	c.van.unwatch(c.watchedPid, c.endpoint)
	_ = c.own.Close() // unmapping a mapping cannot fail
	c.peer.close()
	if c.van.ctx.Err() != nil || c.peerGone.Load() || c.van.opt.TwoSided {
		c.closeSocketLocked()
	} else {
		_ = unix.Shutdown(c.sock, unix.SHUT_WR)
	}
}

func (c *connection) closeSocket() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeSocketLocked()
}

func (c *connection) closeSocketLocked() {
	if c.sock >= 0 {
		c.van.unwatch(c.sock, c.endpoint)
		_ = unix.Close(c.sock)
		c.sock = -1
	}
}

// peerShutDown reports whether the socket shows that the peer has released everything.
func (c *connection) peerShutDown() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sock >= 0 && sys.Shows(c.sock, unix.POLLRDHUP|unix.POLLHUP)
}

// watchEndOnly has the kernel report nothing of the socket but its end.
func (c *connection) watchEndOnly() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sock >= 0 {
		_ = c.van.kernel.epoll.Change(c.sock, unix.EPOLLRDHUP, c.sock)
	}
}
