package shmvan

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/van"
)

const (
	// kernelEvery is how many thorough Polls pass between two that ask the kernel, which is a system call.
	kernelEvery = 64
	// checkPeerEvery is how many visits in vain pass between two checks whether the peer has closed.
	checkPeerEvery = 32
)

// Poll implements van.Van. Budget of an endpoint that has nothing: three loads.
func (v *shmVan) Poll(events []van.Event, all bool) int {
	if len(events) == 0 || !v.polling.CompareAndSwap(false, true) {
		return 0
	}
	if v.page.armed.Load() {
		v.page.disarm()
		v.kernelDue = true
	}
	out := sink{events[:0:len(events)]}
	v.polls++
	v.moved = false
	eps := *v.eps.Load()
	if v.turn++; v.turn >= len(eps) {
		v.turn = 0
	}
	for i := range eps {
		eps[(v.turn+i)%len(eps)].step(&out, all)
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

// pollKernel asks which peers are gone or have put something in their socket. It reports whether it found any.
func (v *shmVan) pollKernel() (found bool) {
	found = v.readKernel()
	for i, e := range v.withInput {
		e.readSocket()
		v.withInput[i] = nil
	}
	v.withInput = v.withInput[:0]
	return found
}

// readKernel lists the endpoints whose socket has something, and marks those whose peer is gone.
func (v *shmVan) readKernel() (found bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var events [64]unix.EpollEvent
	n := v.kernel.epoll.Wait(events[:])
	for _, ev := range events[:n] {
		e := v.kernel.endpoints[ev.Fd]
		switch {
		case e == nil:
		case int(ev.Fd) == e.conn.watchedPid:
			e.conn.peerGone.Store(true)
		case ev.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0:
			e.conn.peerGone.Store(true)
			// The poller reads what is still in the socket when a record names it.
			_ = v.kernel.epoll.Remove(int(ev.Fd))
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
	if v.ctx.Err() != nil {
		return true
	}
	v.page.arm()
	if v.pollKernel() || v.busy() {
		v.page.disarm()
		v.kernelDue = true
		return false
	}
	return true
}

// busy reports whether a Poll would find something.
func (v *shmVan) busy() bool {
	return slices.ContainsFunc(*v.eps.Load(), (*endpoint).busy)
}
