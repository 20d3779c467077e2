package shmvan

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/parts"
)

// endpoint is one side of a connection. Its parts lie in it by value, and share the connection.
type endpoint struct {
	conn     connection
	sender   sender // guarded by conn.mu
	grants   grants // guarded by conn.mu
	receiver receiver
	memory   peerMemory
	parts.UserValue

	// The poller's.
	unannounced bool   // accepted, and not announced
	reported    bool   // EventLost
	detached    bool   // EventDetached
	idle        uint32 // visits that found no record
}

func (v *shmVan) newEndpoint(sock int, own *shm.Memory, p *peer) *endpoint {
	e := &endpoint{}
	opt, ownBytes, peerBytes := &v.opt, own.Bytes(), p.file.Bytes()
	c := &e.conn
	c.van, c.endpoint, c.sock, c.own, c.peer, c.watchedPid, c.mapped = v, e, sock, own, p, p.pidfd, true
	c.public = e
	if !opt.TwoSided {
		c.public = granter{e}
	}
	c.name = fmt.Sprintf("pid %d", p.hello.Pid)
	c.ownWords, c.peerWords = wordsOf(ownBytes, opt.RingBytes), wordsOf(peerBytes, int(p.hello.Ring))
	c.asleep = shm.Word64(p.page.Bytes(), offAsleep)

	table, peerTable := tableOf(ownBytes, opt.RingBytes, opt.slots()), tableOf(peerBytes, int(p.hello.Ring), int(p.hello.Slots))
	e.grants = grants{conn: c, table: table, peerTable: peerTable}
	e.memory = peerMemory{conn: c, table: table, peerTable: peerTable, edge: p.file.Edge()}
	e.memory.grants = make([]atomic.Pointer[peerGrant], min(table.slots, peerTable.slots))

	e.sender.conn, e.sender.memory, e.sender.grants = c, &e.memory, &e.grants
	e.sender.out = producer{own: c.ownWords, peer: c.peerWords, edge: own.Edge(), headroom: opt.headroom()}
	e.sender.ops.init(opt.SendQueue)

	e.receiver.conn, e.receiver.memory = c, &e.memory
	e.receiver.in = consumer{own: c.ownWords, peer: c.peerWords, edge: p.file.Edge(), reportEvery: p.hello.Ring / 64}
	e.receiver.credits = parts.NewCredits(opt.Credits, v.wakePoller)
	if !opt.NoForeign && p.canRead() {
		e.receiver.canRead = true
		c.ownWords.reads.Store(1)
	}
	return e
}

// Peer implements van.Endpoint.
func (e *endpoint) Peer() string { return e.conn.name }

// Send implements van.Endpoint. Budget for a small message: no allocation, no system call unless the peer
// sleeps, one uncontended lock, one copy.
func (e *endpoint) Send(m *van.Message) error {
	size, err := e.conn.van.caps.Check(m)
	if err != nil {
		return err
	}
	e.conn.mu.Lock()
	err = e.sender.send(m, size)
	if err == nil && !e.sender.isForLater(m, size) {
		e.conn.wakeIfAsleep()
	}
	e.conn.mu.Unlock()
	return err // the peer wakes this side for what completes later
}

// Close implements van.Endpoint. It returns when nothing reads or writes memory of this endpoint any more.
func (e *endpoint) Close() error {
	c := &e.conn
	c.state.Store(stateClosed)
	for e.receiver.copying.Load() {
		runtime.Gosched() // one copy, of a bounded piece
	}
	c.sendClosed()
	c.van.wakePoller()
	return nil
}

// unmap releases the peer's memory and the connection's own, once, after the end, when the program has no view. It
// reports whether that has been done. The poller calls it; once the van is closed, any goroutine may.
func (e *endpoint) unmap() bool {
	c := &e.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mapped || e.memory.views.Load() > 0 {
		return !c.mapped
	}
	e.receiver.arrival = arrival{}
	e.memory.close()
	c.unmap()
	return true
}

// endView ends the use of the mapped files by a view. Any goroutine.
func (e *endpoint) endView() {
	if e.memory.views.Add(-1) > 0 || e.conn.state.Load() == stateOpen {
		return
	}
	if e.conn.van.pollerEnded.Load() {
		e.closeWithVan()
		return
	}
	e.conn.van.wakePoller() // which unmaps the files
}

// closeWithVan ends an endpoint whose van is closed: the poller may never come again. If the files were unmapped
// before, it does not wait for the peer to unmap its own.
func (e *endpoint) closeWithVan() {
	if e.conn.peerShutDown() {
		e.conn.peerGone.Store(true)
	}
	if e.unmap() {
		e.conn.closeSocket()
	}
}

// discard ends an endpoint that no poller knows.
func (e *endpoint) discard() {
	e.conn.state.Store(stateClosed)
	e.conn.sendClosed()
	e.unmap()
	e.conn.closeSocket()
}

// step moves one endpoint. Poller only, as what follows.
func (e *endpoint) step(out *sink, all bool) {
	c, r := &e.conn, &e.receiver
	if e.unannounced {
		e.announce(out)
		return
	}
	if c.state.Load() != stateOpen {
		e.end(out)
		return
	}
	e.sender.complete(out, false)
	if r.in.waiting() || r.arrival.hasSegments() {
		e.idle = 0
		r.receive(out)
	} else if e.idle++; all && e.idle >= checkPeerEvery || c.peerGone.Load() {
		e.idle = 0
		e.checkPeer()
	} else if c.peerFault.Load() != nil {
		e.checkPeer()
	}
	e.sender.advance(out)
	if c.state.Load() != stateOpen {
		e.end(out)
	}
}

// announce reports an endpoint that was accepted, unless the van has closed it. It receives from the next Poll on.
func (e *endpoint) announce(out *sink) {
	e.unannounced = false
	if e.conn.state.Load() == stateClosed {
		e.detached = true // nothing is reported of it
		return
	}
	out.emit(van.Event{Kind: van.EventAccepted, Endpoint: e.conn.public})
}

// checkPeer finds out whether the peer is still there, and keeps the protocol. The last look at its ring found nothing.
func (e *endpoint) checkPeer() {
	c := &e.conn
	if err := c.peerFault.Load(); err != nil {
		c.lose(&stepvan.OpError{Op: "map", Van: name, Peer: c.name, Err: *err})
		return
	}
	ended := c.peerEnded()
	if err := e.sender.checkPeerWords(); err != nil {
		c.lose(err)
		return
	}
	e.memory.mu.Lock()
	e.memory.dropUnused()
	e.memory.mu.Unlock()
	if ended && !e.receiver.in.waiting() {
		c.lose(parts.ErrClosedByPeer)
	}
}

// end reports what is left of an endpoint that has ended.
func (e *endpoint) end(out *sink) {
	c := &e.conn
	e.sender.complete(out, true)
	if !e.grants.fail(out) || out.full() || e.sender.ops.left() {
		return
	}
	if c.state.Load() == stateLost && !e.reported {
		e.reported = true
		out.emit(van.Event{Kind: van.EventLost, Endpoint: c.public, Err: c.cause})
	}
	unmapped := e.unmap()
	if !c.van.opt.TwoSided && !e.detached {
		if !c.peerGone.Load() || out.full() { // the kernel tells when the peer holds nothing
			return
		}
		e.detached = true
		out.emit(van.Event{Kind: van.EventDetached, Endpoint: c.public})
	}
	if unmapped { // else the program has views of the peer's memory; the end of the last one wakes the poller
		c.van.remove(e)
		c.closeSocket()
	}
}

// busy reports whether a visit would find something.
func (e *endpoint) busy() bool {
	c, r := &e.conn, &e.receiver
	if e.unannounced {
		return true
	}
	if c.state.Load() != stateOpen {
		return !e.reported && c.state.Load() == stateLost || e.sender.ops.left() ||
			c.stillMapped() && e.memory.views.Load() == 0 || c.peerGone.Load() && !e.detached
	}
	if c.peerFault.Load() != nil || r.arrival.hasSegments() {
		return true
	}
	if r.in.waiting() { // without a credit the poller can sleep even if the peer has ended: the messages come first
		if !r.credits.Starved() {
			return true
		}
	} else if c.peerEnded() {
		return true
	}
	return e.sender.busy()
}

// readSocket takes what is in the socket.
func (e *endpoint) readSocket() {
	c := &e.conn
	for range maxSocketReads {
		if c.state.Load() != stateOpen {
			c.watchEndOnly()
			return
		}
		e.memory.mu.Lock()
		f, err := e.memory.readMessage()
		e.memory.mu.Unlock()
		switch {
		case errors.Is(err, sys.Again):
			return
		case err != nil:
			c.lose(&stepvan.OpError{Op: "receive", Van: name, Peer: c.name, Err: err})
		case f == nil:
			return // one byte ends a sleep; the kernel reports again what comes behind it
		}
	}
}
