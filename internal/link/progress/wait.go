package progress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
)

// errContextEnded stands for the error of the context that ended a wait.
var errContextEnded = errors.New("context ended")

// errWaitTimeout stands for the end of a limit of time.
var errWaitTimeout = errors.New("time limit")

// errNotYet is the end of a WaitFor that only looks.
var errNotYet = errs.Late("stepvan: wait: it is not over yet, the operation continues and can be waited for", context.DeadlineExceeded)

// Wait drives the transport until ev is set, and returns nil then. It returns an error that wraps ctx.Err() when ctx
// ends first, stepvan.ErrClosed when the engine is closed, and the cause of [Engine.Fail].
func (e *Engine) Wait(ctx context.Context, ev *Event) error {
	if ev.IsSet() {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stepvan: wait: %w", errs.GaveUp(0, err))
	}
	w := wait{engine: e, ev: ev, d: -1, cancel: ctx.Done()}
	if _, ok := ctx.Deadline(); ok {
		w.ctx = ctx
	}
	err := w.run()
	if errors.Is(err, errContextEnded) || errors.Is(err, errWaitTimeout) {
		cause := cmp.Or(ctx.Err(), context.DeadlineExceeded) // the deadline may pass a moment before ctx ends
		return fmt.Errorf("stepvan: wait: %w", errs.GaveUp(w.lasted(), cause))
	}
	return err
}

// WaitFor is Wait with a time limit in place of a context; d < 0 waits for ever. It allocates only when a
// limit above 0 has passed.
func (e *Engine) WaitFor(d time.Duration, ev *Event) error {
	if ev.IsSet() {
		return nil
	}
	w := wait{engine: e, ev: ev, d: d}
	err := w.run()
	switch {
	case err != errWaitTimeout: //nolint:errorlint // it is this very error, and this is the end of each wait
		return err
	case d == 0:
		return errNotYet
	}
	return fmt.Errorf("stepvan: wait: %w; the operation continues and can be waited for again", errs.GaveUp(d, context.DeadlineExceeded))
}

// wait is one call of Wait or WaitFor.
type wait struct {
	engine *Engine
	ev     *Event

	d        time.Duration   // limit, from the first look at the clock on; negative: none
	ctx      context.Context // has a deadline, if it is not nil
	cancel   <-chan struct{}
	until    int64     // about when the limit is reached, by nanotime; 0: not known yet, negative: never
	begun    time.Time // about; zero while until is 0
	deadline time.Time

	driving driving
}

// run is the outermost frame of a wait, which catches panics.
func (w *wait) run() (err error) {
	defer w.engine.recoverPanic(&w.driving, &err)
	err = w.driveOrPark()
	w.driving.ended = true
	return err
}

// driveOrPark drives if the token is free. It parks when the token is taken, or when it has driven in vain.
func (w *wait) driveOrPark() error {
	e := w.engine
	if !e.token.take() {
		return w.park(notDriven)
	}
	w.driving.holdsToken = true
	if e.leavesToDriver() {
		turn := e.giveBackUnused()
		w.driving.holdsToken = false
		return w.park(turn)
	}
	e.beginDriving(nanotime())
	done, err := w.drive()
	turn := e.token.turns()
	e.endDriving(!done)
	w.driving.holdsToken = false
	if done {
		return err
	}
	return w.park(turn)
}

// notDriven stands for the turn of a waiter that has not driven.
const notDriven = 0

// setDeadline reads the clock the first time that it matters: most waits end before.
func (w *wait) setDeadline(now int64) {
	switch {
	case w.until != 0:
		return
	case w.ctx != nil:
		w.begun = time.Now()
		w.deadline, _ = w.ctx.Deadline()
	case w.d >= 0:
		w.begun = time.Now()
		w.deadline = w.begun.Add(w.d)
	default:
		w.begun, w.until = time.Now(), -1
		return
	}
	w.until = now + int64(w.deadline.Sub(w.begun))
}

// lasted is about how long the wait has taken.
func (w *wait) lasted() time.Duration {
	if w.until == 0 {
		return 0
	}
	return time.Since(w.begun)
}

// over returns why the wait ends in vain, and nil while it may continue.
func (w *wait) over(now int64) error {
	if w.engine.token.has(closed) {
		return w.engine.ended()
	}
	if w.cancel != nil {
		select {
		case <-w.cancel:
			return errContextEnded
		default:
		}
	}
	w.setDeadline(now)
	if w.until > 0 && now >= w.until && !time.Now().Before(w.deadline) {
		return errWaitTimeout
	}
	return nil
}

// timeLeft is how long the wait may still take; negative: until cancel is closed.
func (w *wait) timeLeft() time.Duration {
	w.setDeadline(nanotime())
	if w.until < 0 || w.ctx != nil {
		return -1
	}
	return max(0, time.Until(w.deadline))
}

// park sleeps on a channel until the event is set or the limit is reached. It drives when another goroutine hands the
// token over. The argument turn is the turn in which the caller has driven in vain and armed the source, or notDriven.
func (w *wait) park(turn uint64) error {
	e := w.engine
	var timeout <-chan time.Time
	if d := w.timeLeft(); d >= 0 {
		t := e.timers.take(d)
		defer e.timers.put(t)
		timeout = t.C
	}
	for {
		p := w.enqueue(turn)
		if p == nil {
			if w.ev.IsSet() {
				return nil
			}
			return e.ended()
		}
		var limit error
		select {
		case <-p.wake:
		case <-timeout:
			limit = errWaitTimeout
		case <-w.cancel:
			limit = errContextEnded
		}
		if e.waiters.remove(p, limit == nil) {
			turn = e.token.turns()
			if done, err := w.driveGranted(limit); done {
				return err
			}
		}
		if w.ev.IsSet() {
			return nil
		}
		if limit != nil {
			return limit
		}
		if e.token.has(closed) {
			return e.ended()
		}
	}
}

// driveGranted drives with a token that another goroutine has handed over.
func (w *wait) driveGranted(limit error) (done bool, err error) {
	w.driving.holdsToken = true
	w.engine.listener.stop()
	if limit == nil && !w.ev.IsSet() {
		done, err = w.drive()
	}
	w.engine.endDriving(!done && limit == nil && !w.ev.IsSet())
	w.driving.holdsToken = false
	return done, err
}

// enqueue puts the caller among the parked waiters. It returns nil when nothing is left to wait for.
func (w *wait) enqueue(turn uint64) *waiter {
	e := w.engine
	e.waiters.mu.Lock()
	defer e.waiters.mu.Unlock()
	if !w.ev.await(eventParked) || e.token.has(closed) {
		return nil
	}
	p := e.waiters.addLocked(w.ev, turn != notDriven)
	e.token.mark(parked)
	switch {
	case e.token.has(held) || e.token.turns() == turn:
	case p.hasDriven:
		e.sleeper.wakeDriver() // another goroutine has driven since, and may not have armed the source
	case e.token.take():
		e.waiters.grantLocked(p)
	}
	return p
}
