package progress

import "runtime"

// drive is the background driver. What woke it may have come while somebody settles, who
// does not look any more: who gives the token back wakes it again.
func (e *Engine) drive(bind func()) {
	defer close(e.stopped)
	var s stretch
	var cause error // told to the waits; the driver itself tells nobody
	defer e.caught(&s, &cause)
	if bind != nil {
		runtime.LockOSThread() // for good: the thread ends with the driver
		bind()
	}
	e.parker.sit(func() (leave bool) {
		if e.take() {
			s.driving = true
			e.turn(false)
			s.driving = false
		} else if !e.mark(called) && !e.has(closed) {
			e.parker.wake() // it was given back meanwhile
		}
		return e.has(closed)
	})
}

// turn moves everything that can move, settles, and gives the token back. The caller has taken it. What was held
// back may ride on what the program sends next, so it goes when the program has had a tick to do so.
func (e *Engine) turn(idle bool) {
	for !e.has(closed) {
		empty := e.empty()
		e.src.Flush(idle)
		if !empty {
			if e.handOver() {
				return
			}
		} else if e.src.Arm() {
			e.listen()
			break
		}
	}
	e.release()
	if !idle {
		e.tickOn()
	}
}

// empty polls until nothing moves any more, or, then it returns false, a waiter wants to
// drive or the engine is closed.
func (e *Engine) empty() bool {
	for pass := 1; ; pass++ {
		if e.src.Poll(true) == 0 {
			return true
		}
		if e.wanted() || e.has(closed) {
			return false
		}
		if pass&31 == 0 {
			e.src.Flush(false)
		}
	}
}

// wanted reports whether a waiter would rather drive by itself.
func (e *Engine) wanted() bool {
	if !e.has(watched) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiters.fresh > 0
}
