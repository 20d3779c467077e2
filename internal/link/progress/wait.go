package progress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
)

// errContextEnded stands for the error of the context that ended a wait.
var errContextEnded = errors.New("context ended")

// errWaitTimeout stands for the end of a limit of time.
var errWaitTimeout = errors.New("time limit")

// errNotYet is the end of a WaitFor that only looks.
var errNotYet = errs.Late("stepvan: wait: it is not over yet, the operation continues and can be waited for", context.DeadlineExceeded)

// Wait returns nil when ev is set. Until then it drives the transport, or parks while another goroutine drives. It
// returns an error that wraps ctx.Err() when ctx ends first, stepvan.ErrClosed when the engine is closed, and the cause
// of [Engine.Fail] after that.
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

// WaitFor is Wait with a time limit in place of a context; d < 0 waits for ever. It allocates only when a limit
// above 0 has passed.
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

// Set makes ev happen and wakes all goroutines that wait for it. Budget: one atomic swap when none of them sleeps.
func (e *Engine) Set(ev *Event) {
	old := ev.state.Swap(eventSet)
	if old&eventParked != 0 {
		e.waiters.wake(ev)
	}
	if old&eventSleeping != 0 {
		e.sleeper.wakeSleeper()
	}
}

// wait is one call of Wait or WaitFor.
type wait struct {
	engine *Engine
	ev     *Event

	d        time.Duration   // limit, from the first look at the clock on; negative: none
	ctx      context.Context // has a deadline, if it is not nil
	cancel   <-chan struct{}
	until    int64 // about when the limit is reached, by nanotime; 0: not known yet, negative: never
	begun    int64 // about, by nanotime; not known while until is 0
	deadline time.Time

	start  int64 // of the wait, by nanotime; 0: not known yet
	wakeAt int64 // when a sleep is to end because the event is due soon, by nanotime; 0: it ends with the event
	noted  bool  // the history has the length of the wait
	moved  bool  // the wait has moved something while it waited for more

	driving driving
}

// run is the outermost frame of a wait, which catches panics.
func (w *wait) run() (err error) {
	defer w.engine.recoverPanic(&w.driving, &err)
	err = w.driveOrPark()
	if w.start != 0 && !w.noted {
		w.noteEnd(err)
	}
	w.driving.ended = true
	return err
}

// driveOrPark drives if the token is free. It parks when the token is taken, when sleepLimit has passed, and when the
// process has too few processors for another goroutine that polls (see leavesToBackground).
func (w *wait) driveOrPark() error {
	e := w.engine
	if !e.token.take() {
		w.start = nanotime()
		return w.park(notDriven)
	}
	w.driving.holdsToken = true
	if e.leavesToBackground() {
		turn := e.giveBackUnused()
		w.driving.holdsToken = false
		return w.park(turn)
	}
	w.start = nanotime()
	e.beginDriving(w.start)
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

const (
	// hotPasses is how often a waiter polls before it first looks at a clock.
	hotPasses = 16
	// roundPasses is how often it polls between two looks at the clock after that.
	roundPasses = 8
	// flushEvery is how long it polls between two calls of Source.Flush.
	flushEvery = int64(10 * time.Microsecond)
)

// drive polls and sleeps until the event is set. It returns false when the caller must park. The caller has the token.
func (w *wait) drive() (done bool, err error) {
	e := w.engine
	spins := e.policy.spins()
	if spins {
		for pass := range hotPasses {
			moved := 0
			if pass == 0 && e.polls.takeAll(e.polls.clockAt) {
				moved = e.Looks.poll(e.src)
			} else {
				moved = e.src.Poll(false)
			}
			if pass == 0 {
				e.absence.noteArrivals(moved)
			}
			if w.ev.IsSet() {
				cpus.reward()
				return true, nil
			}
		}
	}
	for {
		if spins {
			if done, err := w.spin(); done {
				return true, err
			}
		}
		if done, err := w.sleep(); done || w.wakeAt == 0 {
			return done, err
		}
	}
}

// spin polls until the budget is used up. Budget of a round without events: eight polls of the source and one look at
// the clock.
func (w *wait) spin() (done bool, err error) {
	w.wakeAt = 0
	if !cpus.acquire(1) {
		return false, nil
	}
	defer cpus.release()
	e := w.engine
	b := e.policy.budget(e.history(w.ev.Kind))
	last := nanotime()
	idleSince, flushed := last, last
	cpus.sample(last)
	for rounds := 1; ; rounds++ {
		moved := 0
		for range roundPasses {
			moved += e.src.Poll(false)
			if w.ev.IsSet() {
				e.polls.clockAt = last
				b.report(true)
				w.noteLength(last)
				return true, nil
			}
		}
		now := nanotime()
		if moved > 0 {
			idleSince, rounds, w.moved = now, 1, true
		} else {
			b.noteRound(now - last)
		}
		last = now
		if e.polls.takeAll(now) {
			e.Looks.poll(e.src)
		}
		if err := w.over(now); err != nil {
			e.polls.clockAt = now
			return true, err
		}
		if now-flushed > flushEvery {
			flushed = now
			e.src.Flush(false)
		}
		if b.oneProcessor {
			runtime.Gosched() // elsewhere another processor runs the goroutines that wait for this one
		}
		if !w.staysAwake(&b, now, now-idleSince, rounds) {
			e.polls.clockAt = now
			b.report(false)
			return false, nil
		}
	}
}

// setDeadline reads the clock the first time that it matters: most waits end before, or have no limit.
func (w *wait) setDeadline(now int64) {
	if w.until != 0 {
		return
	}
	w.begun = now
	if w.ctx == nil && w.d < 0 {
		w.until = -1
		return
	}
	clock := time.Now()
	if w.ctx != nil {
		w.deadline, _ = w.ctx.Deadline()
	} else {
		w.deadline = clock.Add(w.d)
	}
	w.until = now + int64(w.deadline.Sub(clock))
}

// lasted is about how long the wait has taken.
func (w *wait) lasted() time.Duration {
	if w.until == 0 {
		return 0
	}
	return time.Duration(nanotime() - w.begun)
}

// over returns why the wait must end without its event, and nil while it may continue.
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
