package particle

import (
	"context"
	"fmt"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// Kind says what a call is.
type Kind uint8

// The kinds.
const (
	Message Kind = iota // the hook for a message is to run
	Share               // somebody wants a view, and nothing is shared: [Loop.Share] is to be called
)

// state of a call. Loop.mu guards it.
type state uint8

const (
	queued   state = iota
	running        // it has the turn of its device, or the loop is over
	waiting        // its hook waits
	resuming       // its wait is over, and it wants the turn
	ended
)

// Call is what a hook works at. The goroutine of the hook calls its methods, except where they say otherwise.
type Call struct {
	loop   *Loop
	kind   Kind
	view   bool // a question for a view
	to     ID
	from   ID
	name   string
	chain  uint64
	path   []step // calls that wait for this one, the last is its own
	args   *content
	remote *remote // whose loop wants the result; nil: this one
	charge int64   // what it counts in remote.held
	future *Future // at this loop; nil: elsewhere
	device *device

	// Under Loop.mu.
	state state
	wait  *wait
}

// Kind says what is to be done.
func (c *Call) Kind() Kind { return c.kind }

// Particle is the one that has got the message.
func (c *Call) Particle() ID { return c.to }

// From is the particle that has sent it, or [None].
func (c *Call) From() ID { return c.from }

// Name is the message.
func (c *Call) Name() string { return c.name }

// Chain is the number that the call has in common with the calls that its hook sends, and theirs.
func (c *Call) Chain() uint64 { return c.chain }

// Context ends when the loop is closed.
func (c *Call) Context() context.Context { return c.loop.ctx }

// Args are the arguments. They are valid until the hook ends.
func (c *Call) Args() Value { return c.args.value() }

// Hold is Args for a program that gives them back by itself, with release. It may do so after the hook has ended.
func (c *Call) Hold() (v Value, release func()) {
	if c.args == nil {
		return Value{}, func() {}
	}
	return c.args.value(), c.args.hold().drop
}

// own is the future of the call.
func (c *Call) own() step { return c.path[len(c.path)-1] }

// Send sends a message to a particle, as part of the same chain. See [Loop.Send].
func (c *Call) Send(to ID, message string, args Value) (*Future, error) {
	return c.loop.send(c, c.to, to, message, args)
}

// Get gets a view of a particle, as part of the same chain. See [Loop.Get].
func (c *Call) Get(to ID) (*Future, error) { return c.loop.get(c, c.to, to) }

// SendFrom is Send in the name of another particle.
func (c *Call) SendFrom(from, to ID, message string, args Value) (*Future, error) {
	return c.loop.send(c, from, to, message, args)
}

// GetFrom is Get in the name of another particle.
func (c *Call) GetFrom(from, to ID) (*Future, error) { return c.loop.get(c, from, to) }

// Wait waits within the hook until all futures are done. Meanwhile the device continues with other calls. Wait returns
// with the turn of the device again, so perhaps later than ctx ends. Errors:
//
//   - one that wraps ctx.Err(): some futures are not done;
//   - [stepvan.ErrInvalid]: the hook would wait for itself;
//   - [stepvan.ErrClosed]: the loop was closed. The hook has no turn from here on, and returns;
//   - [stepvan.ErrStale]: the hook has ended before.
func (c *Call) Wait(ctx context.Context, futures ...*Future) error {
	l := c.loop
	w, err := c.beginWait(futures)
	if w == nil {
		return err
	}
	late := w.wait(ctx, l.engine)
	if late != nil {
		if turn := w.giveUp(ctx, late); turn != nil {
			<-turn // it comes, or the loop ends
		}
	}
	return c.endWait(ctx, w, late)
}

func (c *Call) beginWait(futures []*Future) (*wait, error) {
	l := c.loop
	l.mu.Lock()
	defer l.unlock()
	switch {
	case c.state == ended:
		return nil, errHookEnded
	case c.state != running:
		return nil, fmt.Errorf("wait: the hook for %q of particle %d waits already: wait for one thing at a time: %w", c.name, c.to, stepvan.ErrBusy)
	}
	if l.over != nil {
		return nil, l.over
	}
	if err := c.checkOwn(futures); err != nil {
		return nil, err
	}
	w := &wait{loop: l, call: c}
	if !w.begin(futures) {
		return nil, nil
	}
	c.state, c.wait = waiting, w
	c.device.giveTurn(c)
	return w, nil
}

var errHookEnded = fmt.Errorf("wait: its hook has ended: %w", stepvan.ErrStale)

// checkOwn refuses a hook that would wait for itself. Its own future, and those of the hooks that wait for it, are
// never done before it has ended. Nor are those whose hooks wait for it here.
func (c *Call) checkOwn(futures []*Future) error {
	seen := map[*Call]bool{}
	var waitsFor func(f *Future) bool
	waitsFor = func(f *Future) bool {
		if f.over {
			return false
		}
		if slices.Contains(c.path, step{c.loop.rank, f.number}) {
			return true
		}
		x := f.call
		if x == nil || x.wait == nil || seen[x] {
			return false
		}
		seen[x] = true
		return slices.ContainsFunc(x.wait.futures, waitsFor)
	}
	for _, f := range futures {
		if waitsFor(f) {
			return errs.Invalid("wait: the hook for message %q of particle %d: it waits for its own result, by way of %s of particle %d: end it first",
				c.name, c.to, f.what(), f.to)
		}
	}
	return nil
}

// resume has a hook whose wait is over take the turn. Under Loop.mu.
func (c *Call) resume() {
	if c.state != waiting {
		return
	}
	c.state = resuming
	c.device.resumed.push(c)
	c.device.dispatch()
}

// goOn lets the hook continue. Under Loop.mu.
func (c *Call) goOn() {
	w := c.wait
	c.state, c.wait = running, nil
	c.loop.wake(&w.waiter)
	if w.turn != nil {
		close(w.turn)
	}
}

// giveUp ends a wait before its futures are done. It returns what tells that the hook continues; nil when it does
// already.
func (w *wait) giveUp(ctx context.Context, err error) <-chan struct{} {
	l := w.loop
	l.mu.Lock()
	defer l.unlock()
	if engineOver(ctx, err) {
		l.end(errs.Ended("wait", err))
	}
	w.leave()
	w.call.resume()
	if w.call.wait != w {
		return nil
	}
	w.turn = make(chan struct{})
	return w.turn
}

func (c *Call) endWait(ctx context.Context, w *wait, late error) error {
	l := c.loop
	l.mu.Lock()
	defer l.unlock()
	switch {
	case c.state == ended:
		return errHookEnded
	case l.over != nil:
		return l.over
	case late == nil:
		return nil
	}
	return w.late(ctx, late)
}

// Done ends a call that [Loop.Next] has returned, and gives its turn back. Any goroutine may call it, once. If err is
// not nil the hook has failed, and the caller gets its text. Otherwise v is the result. An error of Done says why the
// result cannot be sent. The caller gets that as well, and the call has ended in any case. [stepvan.ErrStale] says
// that it had ended before.
func (c *Call) Done(v Value, err error) error {
	l := c.loop
	p, err, refused := c.result(v, err)
	l.mu.Lock()
	defer l.unlock()
	if c.state == ended {
		if p != nil && v.Lent != nil {
			p.free = func() { release(p.tensors) } // the program keeps what it has lent
		}
		l.later(p)
		return fmt.Errorf("done: the call has ended before: %w", stepvan.ErrStale)
	}
	c.end(p, err)
	return refused
}

// result is what the caller gets: a value, or an error. refused says why there is no value although the hook gave one.
func (c *Call) result(v Value, hookErr error) (p *content, err, refused error) {
	l := c.loop
	switch {
	case hookErr != nil:
		return nil, fail(codeHook, "%s", cut(hookErr.Error())), nil
	case v.Pickled && !l.opt.AllowPickled:
		refused = errPickledHere("done")
	default:
		p, refused = l.opt.take("done", &v)
	}
	if refused != nil {
		err = failureOf(refused)
	}
	return p, err, refused
}

// over gives back what a call has held here. Under Loop.mu.
func (c *Call) over() {
	c.state = ended
	c.loop.later(c.args)
	c.args = nil
	if c.remote != nil {
		c.remote.held -= c.charge
		c.charge = 0
	}
}

// end ends a call. It takes over p. A wait of its hook that continues, on another goroutine, ends with it. Under
// Loop.mu.
func (c *Call) end(p *content, err error) {
	l, d := c.loop, c.device
	if c.wait != nil {
		c.wait.leave()
		d.resumed.take(func(x *Call) bool { return x == c })
		c.goOn()
	}
	c.over()
	delete(l.open, c)
	l.tasks.check(l)
	if c.view {
		c.answerView(err)
		l.later(p)
	} else {
		c.answer(p, err)
	}
	d.close(c.chain)
	d.giveTurn(c)
}
