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
		v.poll.kernelDue = true
	}
	out := sink{events[:0:len(events)]}
	v.poll.passes++
	v.poll.moved = false
	if v.fresh.Load() > 0 {
		v.announce(&out)
	}
	eps := *v.eps.Load()
	if v.poll.turn++; v.poll.turn >= len(eps) {
		v.poll.turn = 0
	}
	for i := range eps {
		e := eps[(v.poll.turn+i)%len(eps)]
		if e.born != v.poll.passes {
			e.step(&out, all)
		}
		if out.full() {
			break
		}
	}
	if v.poll.kernelDue && len(out.events) == 0 || all && v.poll.passes%kernelEvery == 0 {
		v.poll.kernelDue = false
		v.pollKernel()
	}
	v.poll.moved = v.poll.moved || len(out.events) > 0
	v.polling.Store(false)
	return len(out.events)
}

// Moved implements van.Mover.
func (v *shmVan) Moved() bool { return v.poll.moved }

// announce reports peers that connected.
func (v *shmVan) announce(out *sink) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for len(v.newcomers) > 0 && !out.full() {
		e := v.newcomers[0]
		v.newcomers = v.newcomers[1:]
		e.born = v.poll.passes
		v.enlist(e)
		out.emit(van.Event{Kind: van.EventAccepted, Endpoint: e.public()})
	}
	v.fresh.Store(int32(len(v.newcomers)))
}

// step moves one endpoint.
func (e *endpoint) step(out *sink, all bool) {
	if e.state.Load() != stateOpen {
		e.end(out)
		return
	}
	e.tx.complete(out, false)
	if e.rx.in.waiting() || e.rx.incoming.referred() {
		e.rx.idle = 0
		e.rx.receive(out)
	} else if e.rx.idle++; all && e.rx.idle >= lookEvery || e.gone.Load() {
		e.rx.idle = 0
		e.inspect()
	} else if e.pm.violation.Load() != nil {
		e.inspect()
	}
	e.tx.advance(out)
	if e.state.Load() != stateOpen {
		e.end(out)
	}
}

// inspect checks that the peer has not ended and that its counters are possible. Poll calls it when there is nothing to read.
func (e *endpoint) inspect() {
	if err := e.pm.violation.Load(); err != nil {
		e.lose(&stepvan.OpError{Op: "map", Van: name, Peer: e.name, Err: *err})
		return
	}
	over := e.peerWords.closed.Load() != 0 || e.gone.Load()
	if err := e.tx.checkProgress(); err != nil {
		e.lose(err)
		return
	}
	e.pm.mu.Lock()
	e.pm.dropUnused()
	e.pm.mu.Unlock()
	if over && !e.rx.in.waiting() {
		e.lose(errHungUp)
	}
}

// end reports what is left of an endpoint that is over.
func (e *endpoint) end(out *sink) {
	e.tx.complete(out, true)
	if !e.tx.failWithdrawals(out) || out.full() || e.tx.ops.read.Load() != e.tx.ops.written.Load() {
		return
	}
	if e.state.Load() == stateLost && !e.reported {
		e.reported = true
		out.emit(van.Event{Kind: van.EventLost, Endpoint: e.public(), Err: e.cause})
	}
	free := e.releaseMemory()
	if !e.v.opt.TwoSided && !e.detached {
		if !e.gone.Load() || out.full() { // the kernel tells when the peer holds nothing
			return
		}
		e.detached = true
		out.emit(van.Event{Kind: van.EventDetached, Endpoint: e.public()})
	}
	if free { // else views of the peer's memory are out, and the last one that comes back has the poller come again
		e.v.remove(e)
		e.tx.mu.Lock()
		e.closeSocket()
		e.tx.mu.Unlock()
	}
}

// pollKernel asks which peers have let go, died, or put something in their socket. It reports whether there was anything.
func (v *shmVan) pollKernel() (found bool) {
	found = v.gather()
	for i, e := range v.poll.inputs {
		e.readSocket()
		v.poll.inputs[i] = nil
	}
	v.poll.inputs = v.poll.inputs[:0]
	return found
}

// gather lists the endpoints whose socket has something, and marks those whose peer is gone.
func (v *shmVan) gather() (found bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.set.epfd < 0 {
		return false
	}
	var events [64]unix.EpollEvent
	n, err := unix.EpollWait(v.set.epfd, events[:], 0)
	for err == unix.EINTR {
		n, err = unix.EpollWait(v.set.epfd, events[:], 0)
	}
	for _, ev := range events[:max(n, 0)] {
		e := v.set.sources[ev.Fd]
		switch {
		case e == nil:
		case int(ev.Fd) == e.watchedPid:
			e.gone.Store(true)
		case ev.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0:
			e.gone.Store(true)
			v.set.change(unix.EPOLL_CTL_DEL, int(ev.Fd), 0) // what is still in it is read when a record names it
		default:
			v.poll.inputs = append(v.poll.inputs, e)
		}
	}
	v.poll.kernelDue = v.poll.kernelDue || n == len(events)
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
	v.poll.sleeps += 2
	v.armed.Store(true)
	v.asleep.Store(v.poll.sleeps - 1)
	if v.pollKernel() || v.busy() {
		v.disarm()
		v.poll.kernelDue = true
		return false
	}
	return true
}

func (v *shmVan) disarm() {
	v.armed.Store(false)
	v.asleep.Store(v.poll.sleeps)
}

// busy reports whether a Poll would find something.
func (v *shmVan) busy() bool {
	if v.fresh.Load() > 0 {
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
		return !e.reported && e.state.Load() == stateLost || e.tx.ops.read.Load() != e.tx.ops.written.Load() ||
			e.tx.stillMapped() && e.pm.views.Load() == 0 || e.gone.Load() && !e.detached
	}
	if e.pm.violation.Load() != nil {
		return true
	}
	if e.rx.incoming.referred() {
		return true
	}
	if e.rx.in.waiting() { // while all credits are out, the van can sleep: the end comes behind the messages
		if !e.rx.credits.starved.Load() {
			return true
		}
	} else if e.gone.Load() || e.peerWords.closed.Load() != 0 {
		return true
	}
	if e.tx.due.Load() && e.tx.couldAdvance() {
		return true
	}
	r := e.tx.ops.read.Load()
	return r != e.tx.ops.written.Load() && e.tx.finished(&e.tx.ops.list[r&e.tx.ops.mask])
}

// couldAdvance reports whether the peer has made room, or let go of a grant.
func (tx *sendSide) couldAdvance() bool {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if !tx.mapped {
		return true
	}
	if tx.finishWithdrawals(); len(tx.grants.completed) > 0 {
		return true
	}
	seen := tx.out.seen
	return tx.out.look() != nil || tx.out.seen != seen
}
