package progress

import (
	"math"
	"time"
)

const (
	// sleepLimit is how long a waiter sleeps at a time with the token, and with a processor of Go's. The end of a
	// context does not end the sleep.
	sleepLimit = int64(4 * time.Millisecond)
	// pollAfterWake is how long a waiter polls after it was woken.
	pollAfterWake = int64(30 * time.Microsecond)
)

// sleep sleeps in the kernel with the token. The thread that the kernel wakes is then the thread that returns. When
// the awaited message ends the sleep, it costs one system call and one Poll. With wakeAt the sleep ends at that time.
// It returns false with wakeAt when the waiter is to poll again, and without wakeAt when it must park.
func (w *wait) sleep() (done bool, err error) {
	e := w.engine
	if e.policy.mode == Spin {
		return false, nil
	}
	began, end := nanotime(), int64(math.MaxInt64)
	if w.start == 0 {
		w.start = began
	}
	if e.policy.threaded {
		if !cpus.acquire(0) {
			w.wakeAt = 0
			return false, nil
		}
		defer cpus.release()
		if cpus.sample(began); cpus.oversubscribed.Load() {
			w.wakeAt = 0
			return false, nil
		}
		end = began + sleepLimit
		if w.wakeAt > 0 {
			end = w.wakeAt
		}
	}

	e.sleeping.Store(true)
	done, err = w.sleepUntil(began, end)
	e.sleeping.Store(false)
	return done, err
}

// sleepUntil sleeps as often as it is woken for something else, until end.
func (w *wait) sleepUntil(began, end int64) (done bool, err error) {
	e := w.engine
	for now := began; ; now = nanotime() {
		e.polls.clockAt = now
		if w.ev.IsSet() {
			w.noteLate(now)
			w.note(now)
			return true, nil
		}
		if err := w.over(now); err != nil {
			return true, err
		}
		if now >= end {
			w.noteLate(now)
			return false, nil
		}
		e.src.Flush(true)
		if e.src.Arm() {
			w.sleepOnce(end, now)
		}
		if nanotime() < end || w.wakeAt == 0 {
			w.pollAfterSleep()
		}
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
		d = min(end-now, sleepLimit)
		if w.until > 0 {
			d = min(d, w.until-now)
		}
	case w.until > 0:
		d = max(0, int64(time.Until(w.deadline)))
	}
	if e.policy.threaded {
		cpus.sample(now)
	}
	if e.sleeper.sleep(time.Duration(d), w.cancel) {
		w.until = 1 // timers and nanotime need not agree
	}
	w.ev.state.And(^uint32(eventSleeping))
}
