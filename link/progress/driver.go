package progress

import "time"

// drive is the background driver: in the kernel's queue while nobody spins, on the bench while somebody does.
func (e *Engine) drive() {
	defer close(e.stopped)
	tick := time.NewTimer(time.Hour)
	defer tick.Stop()
	turn := e.turn // one closure for the life of the engine
	for !e.closed.Load() {
		e.driver.Store(driverKernel)
		e.parker.park(turn)
		if e.closed.Load() {
			return
		}
		e.driver.Store(driverBench)
		e.bench(tick)
	}
}

// turn moves everything that can move. It returns true to leave the kernel's
// queue: somebody else drives, or the engine is closed.
func (e *Engine) turn() (leave bool) {
	for {
		if e.closed.Load() {
			return true
		}
		if !e.held.CompareAndSwap(false, true) {
			return true
		}
		empty := e.empty()
		e.src.Flush(true)
		armed := empty && e.src.Arm()
		if e.pass() {
			return true
		}
		if armed {
			return false
		}
	}
}

// empty polls until nothing moves any more, or, then it returns false, a waiter wants to
// drive or the engine is closed.
func (e *Engine) empty() bool {
	for pass := 1; ; pass++ {
		if e.src.Poll(true) == 0 {
			return true
		}
		if e.wanted() || e.closed.Load() {
			return false
		}
		if pass&31 == 0 {
			e.src.Flush(false)
		}
	}
}

// wanted reports whether a waiter would rather drive by itself.
func (e *Engine) wanted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiters.fresh > 0
}

// pass is the driver's release: it reports whether a waiter got the token.
func (e *Engine) pass() (handed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w := e.waiters.firstFresh(); w != nil && !e.closed.Load() {
		e.waiters.remove(w)
		w.granted = true
		w.wake <- struct{}{}
		return true
	}
	e.held.Store(false)
	return false
}

// bench watches until nobody has driven for a tick, or somebody calls.
func (e *Engine) bench(tick *time.Timer) {
	for !e.closed.Load() {
		if e.leftAlone() {
			return
		}
		seen := e.activity.Load()
		tick.Reset(benchTick)
		select {
		case <-e.rouse:
			tick.Stop()
			return
		case <-tick.C:
		}
		if e.held.Load() {
			continue
		}
		if e.activity.Load() == seen {
			return
		}
		if e.turn() {
			continue
		}
	}
}

// leftAlone reports whether the token became free while the driver was on its
// way to the bench, and somebody depends on it.
func (e *Engine) leftAlone() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.held.Load() && (e.waiters.head != nil || e.stuck.Load())
}
