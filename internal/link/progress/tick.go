package progress

import (
	"sync/atomic"
	"time"
)

// ticker is the timer that looks after what waiters have left unarmed.
type ticker struct {
	timer *time.Timer
	pace  atomic.Int32  // of the next tick
	turns atomic.Uint64 // token.turns at the last tick
}

// Paces of the tick, in rising order.
const (
	noTick int32 = iota
	tickLate
	tickSoon
)

const tickTime = time.Millisecond

var tickAfter = [...]time.Duration{tickLate: 4 * tickTime, tickSoon: tickTime}

// startTick makes sure that a tick follows. The caller has given the token back.
func (e *Engine) startTick() {
	was := e.ticker.pace.Load()
	if was == tickSoon {
		return
	}
	if pace := e.tickPace(); was < pace && e.ticker.pace.CompareAndSwap(was, pace) {
		e.ticker.timer.Reset(tickAfter[pace])
	}
}

// tickPace is how soon the tick is to come. While the background driver listens, a tick only sends what was held back.
// In an oversubscribed process that may wait longer.
func (e *Engine) tickPace() int32 {
	if e.listener.on.Load() && cpus.oversubscribed.Load() {
		return tickLate
	}
	return tickSoon
}

// tick arms the source in place of a waiter that has not done so. It does that as soon as nobody has driven for the
// length of a tick.
//
// A waiter looks at the pace after it has given the token back. The function tick clears the pace before it looks at
// the token. So one of them sees the other.
func (e *Engine) tick() {
	now := e.token.turns()
	idle := e.ticker.turns.Swap(now) == now
	if idle {
		e.ticker.pace.Store(noTick)
	}
	cpus.countProcessors()
	var d driving
	var cause error
	defer e.recoverPanic(&d, &cause)
	switch {
	case e.token.has(closed):
	case !idle:
		pace := e.tickPace()
		e.ticker.pace.Store(pace)
		e.ticker.timer.Reset(tickAfter[pace])
	case e.token.take():
		d.holdsToken = true
		if e.listener.on.Load() {
			e.giveBackUnused()
		} else {
			e.driveOnce(true)
		}
		d.holdsToken = false
	case !e.token.has(held):
		e.startTick()
	}
}
