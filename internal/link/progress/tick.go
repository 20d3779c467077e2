package progress

import (
	"sync/atomic"
	"time"
)

// ticker is the timer that looks after what waiters have left unarmed.
type ticker struct {
	timer   *time.Timer
	pending atomic.Bool   // a tick follows
	turns   atomic.Uint64 // token.turns at the last tick
	busy    atomic.Int32  // ticks in a row that found the program waiting again, at most mostBusy
}

const (
	tickTime = time.Millisecond
	// longestTick is the longest time between two ticks. The ticks come more and more seldom while the program waits
	// again and again, since each one takes a core from a waiter or its peer.
	longestTick = tickTime << mostBusy
	mostBusy    = 2
	// timerSlack makes a tick later than whole milliseconds. Go's runtime sleeps in epoll_wait(2) for whole
	// milliseconds, rounded down, and for one more if the timer has not expired by then. The kernel ends a sleep some
	// 50 us late.
	timerSlack = 40 * time.Microsecond
)

// startTick makes sure that a tick follows. The caller has given the token back.
func (e *Engine) startTick() {
	if !e.ticker.pending.Load() && e.ticker.pending.CompareAndSwap(false, true) {
		e.ticker.timer.Reset(e.tickAfter() + timerSlack)
	}
}

// tickAfter is how soon the tick is to come. While the background driver listens, a tick only sends what was held back.
// In an oversubscribed process that may wait longer.
func (e *Engine) tickAfter() time.Duration {
	if e.listener.on.Load() && cpus.oversubscribed.Load() {
		return longestTick
	}
	return tickTime << e.ticker.busy.Load()
}

// tick arms the source in place of a waiter that has not done so. It does that as soon as nobody has driven for the
// length of a tick.
//
// A waiter looks at pending after it has given the token back. The function tick clears pending before it looks at the
// token. So one of them sees the other.
func (e *Engine) tick() {
	now := e.token.turns()
	idle := e.ticker.turns.Swap(now) == now || e.awayFor(int64(tickTime))
	if idle {
		e.ticker.busy.Store(0)
		e.ticker.pending.Store(false)
	}
	cpus.countProcessors()
	if e.throttled != nil {
		cpus.quota.look(nanotime(), e.throttled)
	}
	var d driving
	var cause error
	defer e.recoverPanic(&d, &cause)
	switch {
	case e.token.has(closed):
	case !idle:
		e.ticker.busy.Store(min(e.ticker.busy.Load()+1, mostBusy))
		e.ticker.timer.Reset(e.tickAfter() + timerSlack)
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

// awayFor reports whether nobody drives, and the last waiter has left so long ago.
func (e *Engine) awayFor(d int64) bool {
	left := e.absence.left.Load()
	return left != 0 && !e.token.has(held) && nanotime()-left >= d
}
