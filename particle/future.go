package particle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link/progress"
)

// Future stands for the result of a call. Any goroutine may call its methods.
type Future struct {
	loop   *Loop
	number uint64
	from   ID
	to     ID
	name   string  // of the message
	remote *remote // whose loop has the particle; nil: this one
	call   *Call   // at this loop; nil elsewhere

	// Under Loop.mu.
	over    bool
	dropped bool // the program has forgotten it
	result  *content
	err     error
	waits   []*wait
	notes   []func() // to be called at the end
	replied bool     // a result has come, perhaps not all of it
	acks    int      // of a creation: loops that have not acknowledged
	acked   []*remote
}

// Particle is the one that has sent the message, or [None].
func (f *Future) Particle() ID { return f.from }

// Number tells the futures of one loop apart.
func (f *Future) Number() uint64 { return f.number }

// Done reports whether the result is there.
func (f *Future) Done() bool {
	f.loop.mu.Lock()
	defer f.loop.mu.Unlock()
	return f.over
}

// Wait waits for the result outside of hooks. Within a hook use [Call.Wait], which lets the device continue. A future
// may be waited for any number of times. Errors:
//
//   - [*HookError]: the hook has failed. It wraps [stepvan.ErrRemote];
//   - [stepvan.ErrInvalid]: the particle has no such hook, or there is no view of it;
//   - [stepvan.ErrNotSupported]: a pickled value was refused;
//   - [stepvan.ErrPeerLost], [stepvan.ErrClosed]: a loop has ended. The text names it;
//   - one that wraps ctx.Err(): the future is not done, and can be waited for again.
func (f *Future) Wait(ctx context.Context) (Value, error) {
	if err := f.loop.Wait(ctx, f); err != nil {
		return Value{}, err
	}
	return f.Result()
}

// Result returns the value of a future that is done. Until [Future.Forget] it stays valid. The errors are listed at
// [Future.Wait], and there is [stepvan.ErrBusy].
func (f *Future) Result() (Value, error) {
	l := f.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	return f.value()
}

// value is Result. Under Loop.mu.
func (f *Future) value() (Value, error) {
	switch {
	case !f.over:
		return Value{}, fmt.Errorf("result: call %d: it is not done: wait for it: %w", f.number, stepvan.ErrBusy)
	case f.err != nil:
		return Value{}, f.err
	case f.dropped:
		return Value{}, fmt.Errorf("result: call %d: it was forgotten: %w", f.number, stepvan.ErrStale)
	}
	return f.result.value(), nil
}

// Hold is Result for a program that gives the value back by itself, with release. It may do so after Forget.
func (f *Future) Hold() (v Value, release func(), err error) {
	f.loop.mu.Lock()
	defer f.loop.mu.Unlock() // a Forget meanwhile would free the value before it is held
	v, err = f.value()
	if err != nil || f.result == nil {
		return v, func() {}, err
	}
	return v, f.result.hold().drop, nil
}

// Forget gives the result up. The call continues, and a result that comes later is dropped. A future with tensors, or
// with a view, has to be forgotten. Others need not.
func (f *Future) Forget() {
	l := f.loop
	l.mu.Lock()
	gone := f.result
	if f.dropped {
		gone = nil
	}
	f.dropped = true
	l.mu.Unlock()
	gone.drop()
}

// Notify has note called once when the future is done, perhaps at once. It must neither block nor call this package.
func (f *Future) Notify(note func()) {
	l := f.loop
	l.mu.Lock()
	over := f.over
	if !over {
		f.notes = append(f.notes, note)
	}
	l.mu.Unlock()
	if over {
		note()
	}
}

// finish ends a future. It takes over p. Under Loop.mu.
func (f *Future) finish(p *content, err error) {
	l := f.loop
	if f.over || f.dropped {
		l.later(p)
		p = nil
	}
	if f.over {
		return
	}
	f.over, f.result, f.err, f.call = true, p, err, nil
	delete(l.futures, f.number)
	for _, w := range f.waits {
		w.step()
	}
	for _, note := range f.notes {
		note()
	}
	f.waits, f.notes = nil, nil
}

// wait is what waits for futures: a hook, or a goroutine outside of hooks. Under Loop.mu.
type wait struct {
	waiter
	loop    *Loop
	call    *Call // nil outside of hooks
	futures []*Future
	left    int           // futures that are not done
	turn    chan struct{} // closed when the hook continues, after a limit has passed; nil before
}

// step notes that one of the futures is done.
func (w *wait) step() {
	if w.left--; w.left > 0 {
		return
	}
	if w.call == nil {
		w.loop.wake(&w.waiter)
		return
	}
	w.call.resume()
}

// leave ends the wait before its futures are done.
func (w *wait) leave() {
	for _, f := range w.futures {
		f.waits = slices.DeleteFunc(f.waits, func(x *wait) bool { return x == w })
	}
}

// Wait waits until all futures are done, whether they have succeeded or not. It is for goroutines outside of hooks. An
// error that wraps ctx.Err() says that some are not done.
func (l *Loop) Wait(ctx context.Context, futures ...*Future) error {
	l.mu.Lock()
	w := &wait{loop: l}
	waits := w.begin(futures)
	l.mu.Unlock()
	if !waits {
		return nil
	}
	err := w.wait(ctx, l.engine)
	if err == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w.leave()
	return w.late(ctx, err)
}

// engineOver reports whether a wait has ended because its node is over.
func engineOver(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded)
}

// late is the error of a wait whose futures are not done.
func (w *wait) late(ctx context.Context, err error) error {
	if w.left <= 0 {
		return nil
	}
	if engineOver(ctx, err) {
		return errs.Ended("wait", err) // the node is over
	}
	for _, f := range w.futures {
		if !f.over {
			return &stepvan.OpError{Op: "wait", Peer: f.remote.nameOf(), Err: errs.Late(
				fmt.Sprintf("%s of particle %d is not done in time: wait again", f.what(), f.to), err)}
		}
	}
	return nil
}

// what names the call.
func (f *Future) what() string {
	if f.name == "" {
		return "a view"
	}
	return fmt.Sprintf("message %q", f.name)
}

// begin begins a wait, and reports whether any future is not done. Under Loop.mu.
func (w *wait) begin(futures []*Future) bool {
	drives := w.loop.opt.Pull
	for _, f := range futures {
		if f.over {
			continue
		}
		w.left++
		w.futures = append(w.futures, f)
		f.waits = append(f.waits, w)
		drives = drives || f.remote != nil || f.acks > 0
	}
	if w.left > 0 {
		w.prepare(progress.Answer, drives)
	}
	return w.left > 0
}
