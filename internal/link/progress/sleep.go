package progress

import (
	"math"
	"time"
)

const (
	// sleepLimit is how long a waiter sleeps with the token, and with a processor of Go's.
	sleepLimit = int64(4 * time.Millisecond)
	// cancelInterval is the same limit while a context may end the wait, because a context does not end the sleep.
	cancelInterval = int64(time.Millisecond)
	// pollAfterWake is how long a waiter polls after it was woken.
	pollAfterWake = int64(30 * time.Microsecond)
)

// sleep sleeps in the kernel with the token. The thread that the kernel wakes is then the thread that returns. When
// the awaited message ends the sleep, it costs one system call and one Poll.
func (w *wait) sleep(spun bool) (done bool, err error) {
	e := w.engine
	if e.policy.mode == Spin {
		return false, nil
	}
	began, end := nanotime(), int64(math.MaxInt64)
	if e.policy.threaded {
		if !cpus.acquire(0) {
			return false, nil
		}
		defer cpus.release()
		if cpus.sample(began); cpus.oversubscribed.Load() {
			return false, nil
		}
		end = began + sleepLimit
	}
	e.sleeping.Store(true)
	done, err = w.sleepUntil(began, end, spun)
	e.sleeping.Store(false)
	return done, err
}

// sleepUntil sleeps as often as it is woken for something else, until end.
func (w *wait) sleepUntil(began, end int64, spun bool) (done bool, err error) {
	e := w.engine
	for now := began; ; now = nanotime() {
		e.polls.clockAt = now
		if w.ev.IsSet() {
			if spun && now-began < pollAfterWake {
				cpus.penalize(0) // the spinning has probably kept the other side from its core
			}
			return true, nil
		}
		if err := w.over(now); err != nil {
			return true, err
		}
		if now >= end {
			return false, nil
		}
		e.src.Flush(true)
		if e.src.Arm() {
			w.sleepOnce(end, now)
		}
		w.pollAfterSleep()
	}
}

// pollAfterSleep polls for a while after a sleep, since large messages come in many parts. It polls only once where
// waiting is to cost nothing.
func (w *wait) pollAfterSleep() {
	e := w.engine
	if e.src.Poll(false) == 0 && !w.ev.IsSet() {
		e.src.Poll(true)
	}
	if !e.policy.threaded || e.policy.mode == Park || cpus.contended() {
		return
	}
	for end := nanotime() + pollAfterWake; !w.ev.IsSet() && nanotime() < end; {
		for range roundPasses {
			e.src.Poll(false)
		}
	}
}

// sleepOnce is one sleep, which begins at now.
func (w *wait) sleepOnce(end, now int64) {
	e := w.engine
	if !w.ev.await(eventSleeping) || e.token.has(closed) {
		return
	}
	d := int64(-1)
	switch {
	case e.policy.threaded:
		d = end - now
		if w.cancel != nil {
			d = min(d, cancelInterval)
		}
		if w.until > 0 {
			d = min(d, w.until-now)
		}
	case w.until > 0:
		d = max(0, int64(time.Until(w.deadline)))
	}
	if e.sleeper.sleep(time.Duration(d), w.cancel) {
		w.until = 1 // timers and nanotime need not agree
	}
	w.ev.state.And(^uint32(eventSleeping))
}
