package progress

import (
	"runtime"
	"sync/atomic"
)

// runDriver is the background driver. What woke it may have come while a waiter arms the source and does not look any
// more. The waiter that gives the token back wakes the driver again then.
func (e *Engine) runDriver(bind func()) {
	defer close(e.stopped)
	var d driving
	var cause error // for the waits; the driver itself has nobody to return it to
	defer e.recoverPanic(&d, &cause)
	if bind != nil {
		runtime.LockOSThread() // for good: the thread ends with the driver
		bind()
	}
	e.sleeper.runDriver(func() (leave bool) {
		if e.token.take() {
			d.holdsToken = true
			e.driveOnce(false)
			d.holdsToken = false
		} else if !e.token.mark(asked) && !e.token.has(closed) {
			e.sleeper.wakeDriver() // the token was given back meanwhile
		}
		return e.token.has(closed)
	})
}

// driveOnce moves everything that can move, arms the source, and gives the token back. The caller has taken the token.
// When idle is false, what was held back waits one tick more, because it may travel with what the program sends next.
func (e *Engine) driveOnce(idle bool) {
	for !e.token.has(closed) {
		exhausted := e.pollUntilIdle()
		e.src.Flush(idle)
		if !exhausted {
			if e.waiters.handOver(&e.token) {
				return
			}
		} else if e.src.Arm() {
			e.listener.start()
			break
		}
	}
	e.release()
	if !idle {
		e.startTick()
	}
}

// pollUntilIdle polls until nothing moves any more. It returns false earlier when a waiter wants to drive, and when the
// engine is closed.
func (e *Engine) pollUntilIdle() bool {
	for pass := 1; ; pass++ {
		if e.src.Poll(true) == 0 {
			return true
		}
		if e.token.has(parked) && e.waiters.wantToken() || e.token.has(closed) {
			return false
		}
		if pass&31 == 0 {
			e.src.Flush(false)
		}
	}
}

// listener says whether what comes wakes the driver. The holder of the token writes it.
type listener struct {
	on      atomic.Bool
	sleeper sleeper
}

// start has what comes wake the driver.
func (l *listener) start() {
	if !l.on.Load() {
		l.on.Store(true)
		l.sleeper.listen(true)
	}
}

// stop keeps the driver from being woken for what the caller handles.
func (l *listener) stop() {
	if l.on.Load() {
		l.on.Store(false)
		l.sleeper.listen(false)
	}
}
