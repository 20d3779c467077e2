package progress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
)

// errCut stands for the error of the context that ended a wait.
var errCut = errors.New("context ended")

// errWaitTimeout stands for the end of a limit of time.
var errWaitTimeout = errors.New("time limit")

// errNotYet is WaitFor that only looks.
var errNotYet = errs.Late("stepvan: wait: it is not over yet, the operation goes on and can be waited for", context.DeadlineExceeded)

// Wait drives the node until ev is set. It returns nil then, an error that
// wraps ctx.Err() when ctx ends first, stepvan.ErrClosed when the engine is closed, and the cause of Fail.
func (e *Engine) Wait(ctx context.Context, ev *Event) error {
	if ev.IsSet() {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stepvan: wait: %w", errs.GaveUp(0, err))
	}
	l := limit{d: -1, cancel: ctx.Done()}
	if _, ok := ctx.Deadline(); ok {
		l.ctx = ctx
	}
	err := e.wait(ev, &l)
	if errors.Is(err, errCut) || errors.Is(err, errWaitTimeout) {
		cause := cmp.Or(ctx.Err(), context.DeadlineExceeded) // its deadline may come a moment before it ends
		return fmt.Errorf("stepvan: wait: %w", errs.GaveUp(l.lasted(), cause))
	}
	return err
}

// WaitFor is Wait with a time limit in place of a context; d < 0 waits for ever. It allocates only where a limit above 0 has passed.
func (e *Engine) WaitFor(d time.Duration, ev *Event) error {
	if ev.IsSet() {
		return nil
	}
	err := e.wait(ev, &limit{d: d})
	switch {
	case err != errWaitTimeout: //nolint:errorlint // it is this very error, and this is the end of each wait
		return err
	case d == 0:
		return errNotYet
	}
	return fmt.Errorf("stepvan: wait: %w; the operation goes on and can be waited for again", errs.GaveUp(d, context.DeadlineExceeded))
}

// wait ends with the cause of a panic below it.
func (e *Engine) wait(ev *Event, l *limit) (err error) {
	defer e.caught(&l.stretch, &err)
	err = e.driveOrPark(ev, l)
	l.ended = true
	return err
}

// driveOrPark drives while that is of use, and parks then.
func (e *Engine) driveOrPark(ev *Event, l *limit) error {
	if e.take() {
		l.driving = true
		if e.abstains() {
			mine := e.abstain()
			l.driving = false
			return e.parked(ev, l, mine)
		}
		e.enter(nanotime())
		done, err := e.pursue(ev, l)
		mine := e.turns()
		e.leave(!done)
		l.driving = false
		if done {
			return err
		}
		return e.parked(ev, l, mine)
	}
	return e.parked(ev, l, fresh)
}

// fresh is in place of a turn for who has not driven.
const fresh = 0

// limit is when a wait ends in vain.
type limit struct {
	d        time.Duration   // from the first look at the clock on; negative: for ever
	ctx      context.Context // has a deadline, if it is not nil
	cancel   <-chan struct{}
	until    int64     // about when, by nanotime; 0: not known yet, negative: for ever
	begun    time.Time // about; zero: until is 0
	deadline time.Time

	stretch // of the wait
}

// set reads the clock the first time that it matters: most waits are over before.
func (l *limit) set(now int64) {
	switch {
	case l.until != 0:
		return
	case l.ctx != nil:
		l.begun = time.Now()
		l.deadline, _ = l.ctx.Deadline()
	case l.d >= 0:
		l.begun = time.Now()
		l.deadline = l.begun.Add(l.d)
	default:
		l.begun, l.until = time.Now(), -1
		return
	}
	l.until = now + int64(l.deadline.Sub(l.begun))
}

// lasted is about how long the wait has taken.
func (l *limit) lasted() time.Duration {
	if l.until == 0 {
		return 0
	}
	return time.Since(l.begun)
}

// over is nil while the wait may go on.
func (l *limit) over(now int64) error {
	if l.cancel != nil {
		select {
		case <-l.cancel:
			return errCut
		default:
		}
	}
	l.set(now)
	if l.until > 0 && now >= l.until && !time.Now().Before(l.deadline) {
		return errWaitTimeout
	}
	return nil
}

// rest is how long the wait may still take; negative: until cancel says so.
func (l *limit) rest() time.Duration {
	l.set(nanotime())
	if l.until < 0 || l.ctx != nil {
		return -1
	}
	return max(0, time.Until(l.deadline))
}

// parked sleeps until ev is set, the limit is reached, or the token is handed over: then it drives.
// mine is the turn in which the caller has driven in vain and settled, or fresh.
func (e *Engine) parked(ev *Event, l *limit, mine uint64) error {
	var timeout <-chan time.Time
	if d := l.rest(); d >= 0 {
		t := e.timers.take(d)
		defer e.timers.put(t)
		timeout = t.C
	}
	for {
		w := e.park(ev, mine)
		if w == nil {
			return e.verdict(ev)
		}
		var cut error
		select {
		case <-w.wake:
		case <-timeout:
			cut = errWaitTimeout
		case <-l.cancel:
			cut = errCut
		}
		if e.unpark(w, cut == nil) {
			mine = e.turns()
			if done, err := e.driveOn(ev, l, cut); done {
				return err
			}
		}
		if ev.IsSet() {
			return nil
		}
		if cut != nil {
			return cut
		}
		if e.has(closed) {
			return e.ended()
		}
	}
}

// driveOn is what a parked waiter does that was handed the token.
func (e *Engine) driveOn(ev *Event, l *limit, cut error) (done bool, err error) {
	l.driving = true
	e.mute()
	if cut == nil && !ev.IsSet() {
		done, err = e.pursue(ev, l)
	}
	e.leave(!done && cut == nil && !ev.IsSet())
	l.driving = false
	return done, err
}

func (e *Engine) verdict(ev *Event) error {
	if ev.IsSet() {
		return nil
	}
	return e.ended()
}

// park enqueues the caller. It returns nil when there is nothing to wait for any more.
func (e *Engine) park(ev *Event, mine uint64) *waiter {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !ev.await(eventAwaited) || e.has(closed) {
		return nil
	}
	w := e.free
	if w == nil {
		w = &waiter{wake: make(chan struct{}, 1)}
	} else {
		e.free = w.next
	}
	w.ev, w.spent, w.granted = ev, mine != fresh, false
	e.waiters.push(w)
	e.mark(watched)
	switch {
	case e.has(held) || e.turns() == mine:
	case w.spent:
		e.parker.wake() // somebody has driven since, and perhaps not settled
	case e.take():
		e.waiters.remove(w)
		w.granted = true
		w.wake <- struct{}{}
	}
	return w
}

// unpark takes w out of the queue, if nobody did yet, recycles it and reports whether the token came with it.
func (e *Engine) unpark(w *waiter, woken bool) (granted bool) {
	e.mu.Lock()
	if w.ev != nil {
		e.waiters.remove(w)
	} else if !woken {
		<-w.wake // the wake-up crossed with the end of the wait
	}
	granted = w.granted
	w.granted = false
	w.next = e.free
	e.free = w
	e.mu.Unlock()
	return granted
}
