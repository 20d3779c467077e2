package shmvan

import (
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

const (
	// kernelEvery is how many thorough Polls pass between two that ask the kernel, which is a system call.
	kernelEvery = 64
	// lookEvery is how many empty looks at a ring pass between two at whether the peer has closed.
	lookEvery = 32
)

// Poll implements van.Van. Budget of an endpoint that has nothing: three loads.
func (v *shmVan) Poll(events []van.Event, all bool) int {
	if len(events) == 0 || !v.polling.CompareAndSwap(false, true) {
		return 0
	}
	if v.armed.Load() {
		v.disarm()
		v.kernelDue = true
	}
	out := sink{events[:0:len(events)]}
	v.polls++
	v.moved = false
	if v.acceptedCount.Load() > 0 {
		v.reportAccepted(&out)
	}
	eps := *v.eps.Load()
	if v.turn++; v.turn >= len(eps) {
		v.turn = 0
	}
	for i := range eps {
		e := eps[(v.turn+i)%len(eps)]
		if e.born != v.polls {
			e.step(&out, all)
		}
		if out.full() {
			break
		}
	}
	if v.kernelDue && len(out.events) == 0 || all && v.polls%kernelEvery == 0 {
		v.kernelDue = false
		v.pollKernel()
	}
	v.moved = v.moved || len(out.events) > 0
	v.polling.Store(false)
	return len(out.events)
}

// Moved implements van.Mover.
func (v *shmVan) Moved() bool { return v.moved }

// announce reports peers that connected.
func (v *shmVan) reportAccepted(out *sink) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for len(v.accepted) > 0 && !out.full() {
		e := v.accepted[0]
		v.accepted = v.accepted[1:]
		e.born = v.polls
		v.appendEndpoint(e)
		out.emit(van.Event{Kind: van.EventAccepted, Endpoint: e.public()})
	}
	v.acceptedCount.Store(int32(len(v.accepted)))
}

// step moves one endpoint.
func (e *endpoint) step(out *sink, all bool) {
	if e.state.Load() != stateOpen {
		e.end(out)
		return
	}
	e.complete(out, false)
	if e.in.waiting() || e.incoming.hasSegments() {
		e.idle = 0
		e.receive(out)
	} else if e.idle++; all && e.idle >= lookEvery || e.gone.Load() {
		e.idle = 0
		e.look()
	} else if e.peerFault.Load() != nil {
		e.look()
	}
	e.advance(out)
	if e.state.Load() != stateOpen {
		e.end(out)
	}
}

// look finds out whether the peer is still there, and honest. There was nothing to read a moment ago.
func (e *endpoint) look() {
	if err := e.peerFault.Load(); err != nil {
		e.lose(&stepvan.OpError{Op: "map", Van: name, Peer: e.name, Err: *err})
		return
	}
	over := e.peerWords.closed.Load() != 0 || e.gone.Load()
	if err := e.checkPeerWords(); err != nil {
		e.lose(err)
		return
	}
	e.filesMu.Lock()
	e.dropUnused()
	e.filesMu.Unlock()
	if over && !e.in.waiting() {
		e.lose(errHungUp)
	}
}

// end reports what is left of an endpoint that is over.
func (e *endpoint) end(out *sink) {
	e.complete(out, true)
	if !e.failWithdrawals(out) || out.full() || e.ops.read.Load() != e.ops.written.Load() {
		return
	}
	if e.state.Load() == stateLost && !e.reported {
		e.reported = true
		out.emit(van.Event{Kind: van.EventLost, Endpoint: e.public(), Err: e.cause})
	}
	free := e.unmap()
	if !e.v.opt.TwoSided && !e.detached {
		if !e.gone.Load() || out.full() { // the kernel tells when the peer holds nothing
			return
		}
		e.detached = true
		out.emit(van.Event{Kind: van.EventDetached, Endpoint: e.public()})
	}
	if free { // else views of the peer's memory are out, and the last one that comes back has the poller come again
		e.v.remove(e)
		e.mu.Lock()
		e.closeSocket()
		e.mu.Unlock()
	}
}

// pollKernel asks which peers have let go, died, or put something in their socket. It reports whether there was anything.
func (v *shmVan) pollKernel() (found bool) {
	found = v.gather()
	for i, e := range v.withInput {
		e.drain()
		v.withInput[i] = nil
	}
	v.withInput = v.withInput[:0]
	return found
}

// gather lists the endpoints whose socket has something, and marks those whose peer is gone.
func (v *shmVan) gather() (found bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.epfd < 0 {
		return false
	}
	var events [64]unix.EpollEvent
	n, err := unix.EpollWait(v.epfd, events[:], 0)
	for err == unix.EINTR {
		n, err = unix.EpollWait(v.epfd, events[:], 0)
	}
	for _, ev := range events[:max(n, 0)] {
		e := v.sources[ev.Fd]
		switch {
		case e == nil:
		case int(ev.Fd) == e.watchedPid:
			e.gone.Store(true)
		case ev.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0:
			e.gone.Store(true)
			v.change(unix.EPOLL_CTL_DEL, int(ev.Fd), 0) // what is still in it is read when a record names it
		default:
			v.withInput = append(v.withInput, e)
		}
	}
	v.kernelDue = v.kernelDue || n == len(events)
	return n > 0
}

// Arm implements van.Van.
func (v *shmVan) Arm() bool {
	if !v.polling.CompareAndSwap(false, true) {
		return false
	}
	defer v.polling.Store(false)
	v.mu.Lock()
	closed := v.closed
	v.mu.Unlock()
	if closed {
		return true
	}
	v.sleeps += 2
	v.armed.Store(true)
	v.asleep.Store(v.sleeps - 1)
	if v.pollKernel() || v.busy() {
		v.disarm()
		v.kernelDue = true
		return false
	}
	return true
}

func (v *shmVan) disarm() {
	v.armed.Store(false)
	v.asleep.Store(v.sleeps)
}

// busy reports whether a Poll would find something.
func (v *shmVan) busy() bool {
	if v.acceptedCount.Load() > 0 {
		return true
	}
	for _, e := range *v.eps.Load() {
		if e.busy() {
			return true
		}
	}
	return false
}

func (e *endpoint) busy() bool {
	if e.state.Load() != stateOpen {
		return !e.reported && e.state.Load() == stateLost || e.ops.read.Load() != e.ops.written.Load() ||
			e.stillMapped() && e.views.Load() == 0 || e.gone.Load() && !e.detached
	}
	if e.peerFault.Load() != nil {
		return true
	}
	if e.incoming.hasSegments() {
		return true
	}
	if e.in.waiting() { // who waits for a credit can sleep, whatever the peer does: the end comes behind its messages
		if !e.credits.starved.Load() {
			return true
		}
	} else if e.gone.Load() || e.peerWords.closed.Load() != 0 {
		return true
	}
	if e.due.Load() && e.couldAdvance() {
		return true
	}
	r := e.ops.read.Load()
	return r != e.ops.written.Load() && e.finished(&e.ops.list[r&e.ops.mask])
}

// couldAdvance reports whether the peer has made room, or let go of a grant.
func (e *endpoint) couldAdvance() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.mapped {
		return true
	}
	if e.settle(); len(e.grants.completed) > 0 {
		return true
	}
	seen := e.out.seen
	return e.out.look() != nil || e.out.seen != seen
}
