package vantest

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// driver polls the vans of a case, sleeps while they have nothing, and runs goroutines beside the case. Its methods are
// for the goroutine of the case, except for ring.
type driver struct {
	reporter
	ctx      context.Context
	cancel   context.CancelFunc
	deadline time.Time
	nodes    []*node
	wakeUp   chan struct{} // written by vans without FD, and by spawned goroutines
	alarm    alarm         // the same for sleeps on descriptors
	spawned  sync.WaitGroup
	parallel atomic.Bool // goroutines were spawned
}

// spawn runs fn beside the case. fn may fail; it must end when ctx does.
func (d *driver) spawn(fn func()) {
	d.parallel.Store(true)
	d.spawned.Go(func() {
		defer d.ring()
		defer func() { d.keep(recover()) }()
		fn()
	})
}

// call runs fn, which may block, beside the case, and polls until it has returned.
func (d *driver) call(what string, fn func()) {
	var done atomic.Bool
	d.spawn(func() {
		fn()
		done.Store(true)
	})
	d.until(what, done.Load)
}

// join polls until all spawned goroutines have ended.
func (d *driver) join() {
	if !d.parallel.Load() {
		return
	}
	var done atomic.Bool
	go func() {
		d.spawned.Wait()
		done.Store(true)
		d.ring()
	}()
	d.until("the end of the goroutines of the case", done.Load)
}

// ring ends the sleep of the driver. Any goroutine.
func (d *driver) ring() {
	notify(d.wakeUp)
	d.alarm.ring()
}

// notify puts a value into a channel with room for one, unless there is one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// mostPolls bounds a wait on a clock that does not move.
const mostPolls = 3_000

// until polls all vans until done, or fails the case's clause: what did not happen.
func (d *driver) until(what string, done func() bool) {
	began := time.Now()
	for n := 0; ; n++ {
		d.relay()
		if done() {
			return
		}
		stuck := n == mostPolls && time.Now().Equal(began) // fake time stands still while anybody is busy
		if !stuck && (d.poll(n%2 == 1) > 0 || n%2 == 0) {
			continue
		}
		if !stuck && done() {
			return
		}
		left := time.Until(d.deadline)
		if stuck || left <= 0 {
			d.fail(d.clause, "waited in vain for %s%s", what, d.state())
		}
		d.sleep(left)
	}
}

// poll polls every van that is not paused.
func (d *driver) poll(all bool) (n int) {
	for _, v := range d.nodes {
		if !v.paused.Load() {
			n += v.poll(all)
		}
	}
	return n
}

// quiet polls until nothing moves any more, as far as one can see from here.
func (d *driver) quiet() {
	for still := 0; still < 20; still++ {
		d.relay()
		if d.poll(true) > 0 {
			still = 0
		}
		runtime.Gosched()
	}
}

// sleep sleeps until a van may have something, as a program would.
func (d *driver) sleep(limit time.Duration) {
	const shortly = 20 * time.Millisecond
	var fds []int
	for _, v := range d.nodes {
		switch {
		case v.closed.Load():
			limit = min(limit, shortly) // its descriptor is gone
		case v.paused.Load():
		case !v.van.Arm():
			return
		case v.van.FD() >= 0:
			fds = append(fds, v.van.FD())
		}
	}
	if len(fds) > 0 {
		if d.parallel.Load() {
			limit = min(limit, shortly) // what a spawned goroutine does before it ends rings nothing
		}
		readable(limit, append(fds, d.alarm.fd)...)
		d.alarm.answer()
		return
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-d.wakeUp:
	case <-t.C:
	}
}

// readable waits until one of the descriptors is readable, and reports whether one is.
func readable(limit time.Duration, fds ...int) bool {
	list := make([]unix.PollFd, len(fds))
	for i, fd := range fds {
		list[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	n, _ := unix.Poll(list, int(limit/time.Millisecond)+1)
	return n > 0
}

// state describes all endpoints, for the text of a failure.
func (d *driver) state() (s string) {
	for i, n := range d.nodes {
		s += n.describe(i)
	}
	return s
}
