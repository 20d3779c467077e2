package progress

import (
	"math"
	"time"
)

const (
	// sleepLimit is how long a waiter sleeps at a time with the token, and with a processor of Go's.
	sleepLimit = int64(4 * time.Millisecond)
	// longestSleep is how long a waiter keeps the token and the processor asleep, when most waits of its kind end in
	// less. Each park wakes the monitor thread of Go's runtime, which costs more processor time than the sleep.
	longestSleep = int64(32 * time.Millisecond)
	// cancelInterval is the same limit while a context may end the wait, because a context does not end the sleep.
	cancelInterval = int64(time.Millisecond)
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
		if end = w.wakeAt; end == 0 {
			end = began + w.mostAsleep()
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
			w.noteWake(now)
			w.noteLength(now)
			return true, nil
		}
		if err := w.over(now); err != nil {
			return true, err
		}
		if now >= end {
			w.noteWake(now)
			return false, nil
		}
		e.src.Flush(true)
		due := end
		if e.src.Arm() {
			due = w.sleepOnce(end, now)
		}
		w.pollAfterSleep(due)
	}
}

// mostAsleep is how long the waiter sleeps before it parks.
func (w *wait) mostAsleep() int64 {
	if h := w.engine.history(w.ev.Kind); h != nil {
		if usual := 2 * h.usual(); usual <= longestSleep {
			return max(sleepLimit, usual)
		}
	}
	return sleepLimit
}

// pollAfterSleep polls for a while after a sleep, since large messages come in many parts. It polls only once where
// waiting is to cost nothing, and where nothing has ended the sleep before it was due to end.
func (w *wait) pollAfterSleep(due int64) {
	e := w.engine
	moved := e.src.Poll(false)
	if moved == 0 && !w.ev.IsSet() {
		moved = e.Looks.poll(e.src)
	}
	w.moved = w.moved || moved > 0
	if !e.policy.threaded || e.policy.mode == Park || cpus.contended() || nanotime() >= due {
		return
	}
	for end := nanotime() + pollAfterWake; !w.ev.IsSet() && nanotime() < end; {
		for range roundPasses {
			w.moved = e.src.Poll(false) > 0 || w.moved
		}
	}
}

// sleepOnce is one sleep, which begins at now. It returns when the sleep was to end by itself.
func (w *wait) sleepOnce(end, now int64) (due int64) {
	e := w.engine
	if !w.ev.await(eventSleeping) || e.token.has(closed) {
		return end
	}
	d := int64(-1)
	due = end
	switch {
	case e.policy.threaded:
		d = max(0, min(end-now, sleepLimit))
		if w.cancel != nil {
			d = min(d, cancelInterval)
		}
		if w.until > 0 {
			d = min(d, w.until-now)
		}
		due = now + d
	case w.until > 0:
		d = max(0, int64(time.Until(w.deadline)))
	}
	if e.policy.threaded {
		cpus.sample(now)
	}
	// A goroutine that this wait has woken, by what it moved, runs only when this one gives its processor away.
	yields := w.moved || cpus.wanted() || e.token.has(parked)
	if e.sleeper.sleep(time.Duration(d), yields, w.cancel) {
		w.until = 1 // timers and nanotime need not agree
	}
	w.moved = false
	w.ev.state.And(^uint32(eventSleeping))
	return due
}
