package progress

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
)

// spinning counts the waiters of this process that burn a core, over all engines:
// more of them than cores would only keep each other from working.
var spinning atomic.Int32

// errCut stands for the error of the context that ended a wait.
var errCut = errors.New("context ended")

var errWaitTimeout = fmt.Errorf("stepvan: wait timed out, the operation goes on and can be waited for again: %w", context.DeadlineExceeded)

// Wait drives the node until ev is set. It returns nil then, an error that
// wraps ctx.Err() when ctx ends first, errs.ErrClosed when the engine is closed.
func (e *Engine) Wait(ctx context.Context, ev *Event) error {
	if ev.IsSet() {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stepvan: wait: %w", err)
	}
	var deadline time.Time
	if d, ok := ctx.Deadline(); ok {
		deadline = d
	}
	done, err := e.drivenWait(ev, deadline, ctx.Done())
	if !done {
		err = e.parkedWait(ev, deadline, nil, ctx.Done())
	}
	if errors.Is(err, errCut) {
		return fmt.Errorf("stepvan: wait: %w", ctx.Err())
	}
	return err
}

// WaitFor is Wait with a time limit in place of a context; d < 0 waits for ever. It does not allocate.
func (e *Engine) WaitFor(d time.Duration, ev *Event) error {
	if ev.IsSet() {
		return nil
	}
	var deadline time.Time
	if d >= 0 {
		deadline = time.Now().Add(d)
	}
	done, err := e.drivenWait(ev, deadline, nil)
	if done {
		return err
	}
	if d < 0 {
		return e.parkedWait(ev, deadline, nil, nil)
	}
	t := e.timers.take(time.Until(deadline))
	defer e.timers.put(t)
	return e.parkedWait(ev, deadline, t.C, nil)
}

// drivenWait polls on the caller's goroutine while the token can be had and the
// budget lasts. done is false when the caller must park.
func (e *Engine) drivenWait(ev *Event, deadline time.Time, cancel <-chan struct{}) (done bool, err error) {
	if !e.acquire() {
		return false, nil
	}
	e.benchDriver()
	e.noteReturn()
	done, err = e.spinFor(ev, deadline, cancel)
	e.Leave()
	e.release()
	return done, err
}

// Enter and Leave bracket what a program does in the node besides waiting: sending,
// which may take longer than many an absence.
func (e *Engine) Enter() {
	if last := e.left.Load(); last != 0 && nanotime()-last > longAway && !e.absent.Load() {
		e.absent.Store(true)
	}
}

// Leave is Enter's other end.
func (e *Engine) Leave() { e.left.Store(nanotime()) }

// noteReturn remembers whether the program was away for long between the last wait and this one.
func (e *Engine) noteReturn() {
	e.Enter()
	if long := e.absent.Load(); long != e.away.Load() {
		e.away.Store(long)
	}
	if e.absent.Load() {
		e.absent.Store(false)
	}
}

// spinFor polls while holding the token. Budget per pass without events: one poll
// of the source; a clock read every eighth.
func (e *Engine) spinFor(ev *Event, deadline time.Time, cancel <-chan struct{}) (done bool, err error) {
	full := int(spinning.Add(1)) > max(1, runtime.GOMAXPROCS(0)-1)
	defer spinning.Add(-1)
	var start int64 // of the current run of empty passes
	for pass, sum := 0, 0; ; pass++ {
		if sum++; e.src.Poll(pass&7 == 7) > 0 {
			pass = -1
		}
		if ev.IsSet() {
			return true, nil
		}
		if e.closed.Load() {
			return true, errs.ErrClosed
		}
		if sum&7 != 0 && pass >= 0 {
			continue
		}
		now := nanotime()
		if pass <= 0 || start == 0 {
			start = now
		}
		if sum&63 == 0 {
			if err := expired(deadline, cancel); err != nil {
				return true, err
			}
		}
		if sum&31 == 0 {
			e.src.Flush(false)
			runtime.Gosched()
		}
		if pass < 0 {
			continue
		}
		if !e.patient(pass, time.Duration(now-start), full) {
			return false, nil
		}
	}
}

// patient reports whether to poll on after the given empty passes, and yields the core when it is time to.
func (e *Engine) patient(pass int, idle time.Duration, full bool) bool {
	if e.mode == Park || full {
		return false
	}
	if idle < e.spin && pass < maxPasses {
		return true
	}
	if e.mode != Spin && (idle > e.spin+e.yield || pass >= 2*maxPasses) {
		return false
	}
	schedYield()
	return true
}

func expired(deadline time.Time, cancel <-chan struct{}) error {
	select {
	case <-cancel:
		return errCut
	default:
	}
	if !deadline.IsZero() && !time.Now().Before(deadline) {
		return errWaitTimeout
	}
	return nil
}

// parkedWait sleeps until ev is set, the limit is reached, or the token is handed over: then it drives.
func (e *Engine) parkedWait(ev *Event, deadline time.Time, timeout <-chan time.Time, cancel <-chan struct{}) error {
	for spent := false; ; {
		w := e.park(ev, spent)
		if w == nil {
			return e.verdict(ev)
		}
		var limit error
		select {
		case <-w.wake:
		case <-timeout:
			limit = errWaitTimeout
		case <-cancel:
			limit = errCut
		}
		granted := e.unpark(w, limit == nil)
		if granted {
			spent = true
			done, err := limit != nil || ev.IsSet(), limit
			if !done {
				done, err = e.spinFor(ev, deadline, cancel)
			}
			e.Leave()
			e.release()
			if done && !ev.IsSet() {
				return err
			}
		}
		if ev.IsSet() {
			return nil
		}
		if limit != nil {
			return limit
		}
		if e.closed.Load() {
			return errs.ErrClosed
		}
	}
}

func (e *Engine) verdict(ev *Event) error {
	if ev.IsSet() {
		return nil
	}
	return errs.ErrClosed
}

// park enqueues the caller. It returns nil when there is nothing to wait for any more.
// When nobody holds the token, the driver is called: the caller has spun in vain.
func (e *Engine) park(ev *Event, spent bool) *waiter {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ev.state.Or(eventAwaited)&eventSet != 0 || e.closed.Load() {
		return nil
	}
	w := e.free
	if w == nil {
		w = &waiter{wake: make(chan struct{}, 1)}
	} else {
		e.free = w.next
	}
	w.ev, w.spent, w.granted = ev, spent || !e.held.Load(), false
	e.waiters.push(w)
	if !e.held.Load() {
		e.callDriver()
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

func schedYield() {
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
