package progress

import (
	"runtime"
	"sync/atomic"
)

// runBackground is the background driver. A wake-up may come while a waiter holds the token and has looked for the last
// time. The bit asked then tells that waiter to wake the background driver again.
func (e *Engine) runBackground(bind func()) {
	defer close(e.stopped)
	var d driving
	var cause error // for the waits; the background driver itself has nobody to return it to
	defer e.recoverPanic(&d, &cause)
	if bind != nil {
		runtime.LockOSThread() // for good: the thread ends with the background driver
		bind()
	}
	e.sleeper.runBackground(func() (leave bool) {
		if e.token.take() {
			d.holdsToken = true
			e.driveOnce(false)
			d.holdsToken = false
		} else if !e.token.mark(asked) && !e.token.has(closed) {
			e.sleeper.wakeBackground() // the token was given back meanwhile
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
		if e.Looks.poll(e.src) == 0 {
			return true
		}
		e.absence.disturbed = true
		if e.token.has(parked) && e.waiters.wantToken() || e.token.has(closed) {
			return false
		}
		if pass&31 == 0 {
			e.src.Flush(false)
		}
	}
}

// listener says whether messages that arrive wake the background driver. The holder of the token writes it.
type listener struct {
	on      atomic.Bool
	sleeper sleeper
}

// start lets messages that arrive wake the background driver.
func (l *listener) start() {
	if !l.on.Load() {
		l.on.Store(true)
		l.sleeper.listen(true)
	}
}

// stop keeps the background driver from being woken for what the caller handles.
func (l *listener) stop() {
	if l.on.Load() {
		l.on.Store(false)
		l.sleeper.listen(false)
	}
}
