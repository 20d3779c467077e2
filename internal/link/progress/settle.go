package progress

import "time"

// enter begins a stretch of driving by a waiter: now is the time.
func (e *Engine) enter(now int64) {
	if last := e.left.Load(); last != 0 && now-last > longAway || e.absent.Load() {
		e.tight = max(0, e.tight-2)
		e.absent.Store(false)
	} else if e.tight < tightest {
		e.tight++
	}
	e.seenAt = now
	e.mute()
}

// mute keeps the driver from being woken for what the caller handles.
func (e *Engine) mute() {
	if e.listening.Load() {
		e.listening.Store(false)
		e.parker.listen(false)
	}
}

// leave ends a stretch of driving by a waiter, which parks next if it was in vain. In a tight loop of
// waits that is two atomic operations.
func (e *Engine) leave(inVain bool) {
	if inVain {
		e.src.Flush(true)
	}
	if inVain || e.tight <= tightest/2 || e.has(attention) {
		e.settle()
	}
	if e.late {
		e.late = false
		e.seenAt = nanotime()
	}
	e.left.Store(e.seenAt)
	if !e.give() {
		e.release()
	}
	if !inVain {
		e.tickOn()
	}
}

// abstains reports whether the wait that begins had better leave driving to the driver, which listens: goroutines
// of the program wait for a processor. To stop it from listening, look in vain and have it listen again
// takes several system calls.
func (e *Engine) abstains() bool {
	if !e.listening.Load() || e.mode == Spin || !crew.crowded.Load() {
		return false
	}
	crew.look(nanotime())
	return crew.crowded.Load()
}

// abstain gives the token back as it was taken, and returns the turn.
func (e *Engine) abstain() (mine uint64) {
	e.src.Flush(true)
	mine = e.turns()
	if !e.give() {
		e.release()
	}
	return mine
}

// tickOn has tick look after what is left unsettled. It is called after the token was given back.
func (e *Engine) tickOn() {
	was := e.ticking.Load()
	if was == tickSoon {
		return
	}
	if pace := e.pace(); was < pace && e.ticking.CompareAndSwap(was, pace) {
		e.timer.Reset(tickAfter[pace])
	}
}

// What becomes of the tick, in the order of how much that is.
const (
	noTick int32 = iota
	tickLate
	tickSoon
)

var tickAfter = [...]time.Duration{tickLate: slowTick, tickSoon: tick}

// pace is how soon the tick is to come. Where the driver listens a tick only has what was held back sent, and that may
// as well wait for a program of many goroutines until its turn has come.
func (e *Engine) pace() int32 {
	if e.listening.Load() && crew.crowded.Load() {
		return tickLate
	}
	return tickSoon
}

// settle makes sure that what comes is noticed while nobody drives. What the driver was called for before is
// served here; else one call in vain would make for the next.
func (e *Engine) settle() {
	if e.has(called) {
		e.word.And(^called)
	}
	if !e.src.Arm() {
		e.src.Poll(false) // takes what completed by itself
		if !e.src.Arm() {
			e.parker.wake() // there is something to do at once
			return
		}
	}
	e.listen()
}

// listen has the driver woken by what comes.
func (e *Engine) listen() {
	if !e.listening.Load() {
		e.listening.Store(true)
		e.parker.listen(true)
	}
}

// release is give when somebody wants attention: a parked waiter that can use the token gets it.
func (e *Engine) release() {
	e.mu.Lock()
	if e.pass() {
		e.mu.Unlock()
		return
	}
	heard, alone := e.listening.Load(), e.waiters.head == nil
	was := e.drop(called | e.stale())
	e.mu.Unlock()
	if was&called != 0 || !heard && (was&stuck != 0 || !alone) {
		e.parker.wake()
	}
}

// handOver gives the token to a parked waiter that can use it. The caller keeps it when there is none.
func (e *Engine) handOver() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pass()
}

// pass is handOver with mu held.
func (e *Engine) pass() bool {
	w := e.waiters.firstFresh()
	if w == nil || e.has(closed) {
		return false
	}
	e.waiters.remove(w)
	w.granted = true
	w.wake <- struct{}{}
	return true
}

// stale are the bits that say nothing any more. mu is held.
func (e *Engine) stale() uint64 {
	if e.waiters.head == nil {
		return watched
	}
	return 0
}

// tick settles what waiters have left unsettled, as soon as nobody has driven for the length of a tick.
//
// A waiter that leaves looks at ticking after it has given the token back, and tick clears it
// before it looks at the token: so one of them sees the other.
func (e *Engine) tick() {
	now := e.turns()
	idle := e.seen.Swap(now) == now
	if idle {
		e.ticking.Store(noTick)
	}
	crew.count()
	var s stretch
	var cause error
	defer e.caught(&s, &cause)
	switch {
	case e.has(closed):
	case !idle:
		pace := e.pace()
		e.ticking.Store(pace)
		e.timer.Reset(tickAfter[pace])
	case e.take():
		s.driving = true
		if e.listening.Load() {
			e.abstain()
		} else {
			e.turn(true)
		}
		s.driving = false
	case !e.has(held):
		e.tickOn()
	}
}
