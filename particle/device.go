package particle

import (
	"context"
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link/progress"
)

// device is where the hooks of some particles run, one at a time. The hook that runs has the turn. Loop.mu guards it.
type device struct {
	loop    *Loop
	index   int
	turn    *Call             // has it; nil: nobody
	nested  fifo[*Call]       // calls whose chain has a hook here that has not ended
	resumed fifo[*Call]       // hooks whose wait is over
	others  fifo[*Call]       // all other calls
	chains  map[uint64]counts // of the calls in others, and of hooks that have not ended
	idle    []*idler          // goroutines that wait for a call, the latest last; see take
	workers int               // goroutines of the loop
}

// counts are about a chain at a device.
type counts struct{ open, queued int }

// idler is a goroutine in Next.
type idler struct {
	waiter
	call   *Call
	drives bool
}

// fifo is a queue. The zero value is empty.
type fifo[T any] struct {
	list []T
	at   int
}

func (q *fifo[T]) push(x T) { q.list = append(q.list, x) }

func (q *fifo[T]) len() int { return len(q.list) - q.at }

// first is the next one of a queue that is not empty.
func (q *fifo[T]) first() T { return q.list[q.at] }

// pop takes the first one out.
func (q *fifo[T]) pop() T {
	var zero T
	x := q.list[q.at]
	q.list[q.at] = zero
	q.at++
	if q.at == len(q.list) {
		q.list, q.at = q.list[:0], 0
		if cap(q.list) > 1024 {
			q.list = nil
		}
	} else if q.at > 1024 && 2*q.at > len(q.list) {
		q.list, q.at = append([]T(nil), q.list[q.at:]...), 0
	}
	return x
}

// take takes those out for which want is true.
func (q *fifo[T]) take(want func(T) bool) (taken []T) {
	var kept []T
	for _, x := range q.list[q.at:] {
		if want(x) {
			taken = append(taken, x)
		} else {
			kept = append(kept, x)
		}
	}
	q.list, q.at = kept, 0
	return taken
}

// add queues a call.
func (d *device) add(c *Call) {
	n := d.chains[c.chain]
	if n.open > 0 {
		d.nested.push(c)
	} else {
		d.others.push(c)
		n.queued++
		d.chains[c.chain] = n
	}
	d.dispatch()
}

// opened notes that a hook of a chain has begun. The calls of the chain that wait go first from here on.
func (d *device) opened(chain uint64) {
	n := d.chains[chain]
	n.open++
	if n.queued > 0 {
		for _, c := range d.others.take(func(c *Call) bool { return c.chain == chain }) {
			d.nested.push(c)
		}
		n.queued = 0
	}
	d.chains[chain] = n
}

// close notes that it has ended.
func (d *device) close(chain uint64) {
	n := d.chains[chain]
	n.open--
	d.keep(chain, n)
}

func (d *device) keep(chain uint64, n counts) {
	if n == (counts{}) {
		delete(d.chains, chain)
	} else {
		d.chains[chain] = n
	}
}

// giveTurn ends the turn of a call, if it has it.
func (d *device) giveTurn(c *Call) {
	if d.turn == c {
		d.turn = nil
		d.dispatch()
	}
}

// dispatch gives the turn away. Questions for views that are there are answered meanwhile, and take no turn.
func (d *device) dispatch() {
	for d.turn == nil && d.loop.over == nil {
		switch {
		case d.nested.len() > 0 && d.runs(d.nested.first()):
			d.start(d.nested.pop())
		case d.resumed.len() > 0:
			c := d.resumed.pop()
			d.turn = c
			c.goOn()
		case d.others.len() > 0 && d.runs(d.others.first()):
			c := d.others.pop()
			n := d.chains[c.chain]
			n.queued--
			d.keep(c.chain, n)
			d.start(c)
		default:
			return
		}
	}
}

// runs reports whether a call can begin: a goroutine takes it, or none is needed.
func (d *device) runs(c *Call) bool {
	return len(d.idle) > 0 || !d.loop.opt.Pull || c.view && d.loop.particles[c.to].share != nil
}

// start has a goroutine run a call.
func (d *device) start(c *Call) {
	l := d.loop
	if c.view && l.particles[c.to].share != nil {
		c.over()
		c.answerView(nil)
		return
	}
	if c.view {
		c.kind = Share
	}
	d.turn, c.state = c, running
	l.open[c] = struct{}{}
	d.opened(c.chain)
	if w := d.take(c); w != nil {
		w.call = c
		l.wake(&w.waiter)
		return
	}
	d.workers++
	go d.work(c)
}

// take takes a goroutine for a call out of those that wait. One that drives gets what comes from other loops: it has
// just read that, and no other goroutine has to wake. One that does not drive gets the calls of this loop, since a
// goroutine that drives may sleep in the kernel. Without a goroutine of the right kind the loop starts one, or takes
// any.
func (d *device) take(c *Call) *idler {
	n := len(d.idle)
	if n == 0 {
		return nil
	}
	at := n - 1
	for at >= 0 && d.idle[at].drives != (c.remote != nil) {
		at--
	}
	if at < 0 {
		if !d.loop.opt.Pull && d.workers < keptIdle {
			return nil
		}
		at = n - 1
	}
	w := d.idle[at]
	d.idle = append(d.idle[:at], d.idle[at+1:]...)
	d.idle[:n][n-1] = nil
	return w
}

// drop takes calls of a loop that is lost out of the queues.
func (d *device) drop(want func(*Call) bool) {
	gone := d.nested.take(want)
	for _, c := range d.others.take(want) {
		n := d.chains[c.chain]
		n.queued--
		d.keep(c.chain, n)
		gone = append(gone, c)
	}
	for _, c := range gone {
		c.over()
	}
}

// Next waits for a call to a device of this loop, which has [Options].Pull, and takes its turn. [Call.Done] gives it
// back. Any number of goroutines may be in Next. idle is how many more of this device are. While a hook waits, its
// device needs another goroutine in Next. Errors: one that wraps ctx.Err(), [stepvan.ErrClosed], [stepvan.ErrInvalid].
func (l *Loop) Next(ctx context.Context, device int) (c *Call, idle int, err error) {
	if device < 0 || device >= len(l.devices) {
		return nil, 0, errs.Invalid("next: device %d: this loop has none (want 0 to %d): count from 0", device, len(l.devices)-1)
	}
	if !l.opt.Pull {
		return nil, 0, errs.Invalid("next: the goroutines of this loop run the hooks: open it with Options.Pull")
	}
	return l.devices[device].next(ctx, true)
}

func (d *device) next(ctx context.Context, drives bool) (*Call, int, error) {
	l := d.loop
	w := &idler{drives: drives}
	w.prepare(progress.Request, drives)
	l.mu.Lock()
	if l.over != nil {
		defer l.unlock()
		return nil, 0, l.over
	}
	d.idle = append(d.idle, w)
	d.dispatch()
	l.unlock()
	return d.await(ctx, w)
}

// await waits for the call of a goroutine that is idle.
func (d *device) await(ctx context.Context, w *idler) (*Call, int, error) {
	l := d.loop
	err := w.wait(ctx, l.engine)
	l.mu.Lock()
	defer l.unlock()
	if w.call != nil {
		return w.call, len(d.idle), nil
	}
	for i, x := range d.idle {
		if x == w {
			d.idle = append(d.idle[:i], d.idle[i+1:]...)
			break
		}
	}
	switch {
	case l.over != nil:
		return nil, 0, l.over
	case engineOver(ctx, err):
		l.end(errs.Ended("next", err))
		return nil, 0, l.over
	case err == nil:
		err = context.DeadlineExceeded // not reached: it was woken by one of these
	}
	return nil, len(d.idle), &stepvan.OpError{Op: "next", Err: errs.Late("there was no call in time: try again", err)}
}

// keptIdle is how many goroutines of a device wait for calls.
const keptIdle = 2

// work runs hooks.
func (d *device) work(c *Call) {
	defer d.loop.opt.Recover()
	for c != nil {
		v, err := c.callHook()
		p, err, _ := c.result(v, err) // the caller has the error
		c = d.handOver(c, p, err)
	}
}

// handOver ends a call and waits for the next one. The goroutine waits before the call ends, so that it may get the
// turn itself. It returns nil when others wait already, or the loop is over.
func (d *device) handOver(c *Call, p *content, err error) *Call {
	l := d.loop
	w := &idler{drives: c.remote != nil}
	w.prepare(progress.Request, w.drives)
	l.mu.Lock()
	stays := l.over == nil && len(d.idle) < keptIdle
	if stays {
		d.idle = append(d.idle, w)
	} else {
		d.workers--
	}
	if c.state != ended {
		c.end(p, err)
	} else {
		l.later(p)
	}
	l.unlock()
	if !stays {
		return nil
	}
	next, _, waitErr := d.await(l.ctx, w)
	if waitErr != nil {
		l.mu.Lock()
		d.workers--
		l.unlock()
	}
	return next
}

// abandon ends a call whose hook ends its goroutine, with runtime.Goexit.
func (c *Call) abandon() {
	_ = c.Done(Value{}, errors.New("it has ended its goroutine")) // the caller has the error
	c.loop.mu.Lock()
	defer c.loop.mu.Unlock()
	c.device.workers--
}

// callHook runs the hook of a call.
func (c *Call) callHook() (v Value, err error) {
	l := c.loop
	l.mu.Lock()
	var hook Hook
	if x := l.particles[c.to]; x != nil {
		hook = x.hooks[c.name]
		if c.kind == Share {
			hook = x.sharer
		}
	}
	l.mu.Unlock()
	if hook == nil {
		return v, fmt.Errorf("the hook has been taken away")
	}
	returned := false
	defer func() {
		if r := recover(); r != nil {
			v, err = Value{}, panicError(r)
		} else if !returned {
			c.abandon()
		}
	}()
	v, err = hook(c, c.Args())
	returned = true
	return v, err
}
