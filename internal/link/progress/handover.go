package progress

import (
	"sync/atomic"
	"time"
)

// absence tells how long the program stays away between its waits.
type absence struct {
	left atomic.Int64 // when the program last left the transport, ns
	long atomic.Bool  // it was away for long since the last wait

	// The holder of the token has these.
	rate      int  // rises with each wait that soon follows the last one, falls with the others
	judged    bool // it is settled whether something came while the program was away
	disturbed bool // something came since the program left
	silent    int  // long absences in a row in which nothing came, at most mostSilent
}

const (
	// longAbsence is the absence after which a waiter whose wait ends arms the source at once.
	longAbsence = int64(40 * time.Microsecond)
	// maxRate is the most that absence.rate becomes. Above its half, waits follow each other closely.
	maxRate = 8
	// mostSilent is how many long absences in a row must have brought nothing before waiters no longer arm the source.
	mostSilent = 16
)

// noteReturn notes that the program is back for something other than a wait.
func (a *absence) noteReturn(now int64) {
	if last := a.left.Load(); last != 0 && now-last > longAbsence && !a.long.Load() {
		a.long.Store(true)
	}
}

// beginWait follows the rate of waits. Holder of the token only.
func (a *absence) beginWait(now int64) {
	if last := a.left.Load(); last != 0 && now-last > longAbsence || a.long.Load() {
		a.rate = max(0, a.rate-2)
		a.long.Store(false)
		a.judged = false
	} else if a.rate < maxRate {
		a.rate++
	}
}

// noteArrivals notes whether something came while the program was away for long: it was handled meanwhile, or the
// first poll has found it. Holder of the token only.
func (a *absence) noteArrivals(found int) {
	switch {
	case a.judged:
	case found > 0 || a.disturbed:
		a.silent = 0
	default:
		a.silent = min(a.silent+1, mostSilent)
	}
	a.judged, a.disturbed = true, false
}

// wantsArming reports whether the program is likely to stay away for long, and something may come meanwhile.
func (a *absence) wantsArming() bool { return a.rate <= maxRate/2 && a.silent < mostSilent }

// beginDriving begins a turn of a waiter.
func (e *Engine) beginDriving(now int64) {
	e.absence.beginWait(now)
	e.polls.clockAt = now
	e.listener.stop()
}

// endDriving ends a turn of a waiter. inVain: the waiter parks next. In a tight loop of waits it costs two atomic
// operations.
func (e *Engine) endDriving(inVain bool) {
	if inVain {
		e.src.Flush(true)
	}
	if inVain || e.absence.wantsArming() || e.token.has(attention) {
		e.armAndListen()
	}
	if e.polls.stale {
		e.polls.stale = false
		e.polls.clockAt = nanotime()
	}
	e.absence.left.Store(e.polls.clockAt)
	if !e.token.give() {
		e.release()
	}
	if !inVain {
		e.startTick()
	}
}

// leavesToBackground reports whether the wait that begins leaves driving to the background driver. It does so when the
// background driver listens and goroutines of the program wait for a processor. The wait would otherwise stop the
// background driver from listening, poll in vain, and have it listen again. That takes several system calls.
func (e *Engine) leavesToBackground() bool {
	if !e.listener.on.Load() || e.policy.mode == Spin || !cpus.oversubscribed.Load() {
		return false
	}
	cpus.sample(nanotime())
	return cpus.oversubscribed.Load()
}

// giveBackUnused gives the token back as it was taken, and returns the turn.
func (e *Engine) giveBackUnused() (turn uint64) {
	e.src.Flush(true)
	turn = e.token.turns()
	if !e.token.give() {
		e.release()
	}
	return turn
}

// armAndListen arms the source and has the background driver listen, so that messages are noticed while nobody drives.
// It clears the bit asked first: it handles what the bit asks for, and one useless wake-up would cause the next.
func (e *Engine) armAndListen() {
	if e.token.has(asked) {
		e.token.clear(asked)
	}
	if !e.src.Arm() {
		e.src.Poll(false) // takes what completed by itself
		e.src.Flush(true) // what that has brought may be owed an answer, and perhaps no tick follows
		if !e.src.Arm() {
			e.sleeper.wakeBackground() // there is something to do at once
			return
		}
	}
	e.listener.start()
}

// release gives the token back when a bit of attention is set. A parked waiter that can use the token gets it.
func (e *Engine) release() {
	e.waiters.mu.Lock()
	if e.waiters.handOverLocked(&e.token) {
		e.waiters.mu.Unlock()
		return
	}
	listening, anyParked := e.listener.on.Load(), e.waiters.list.head != nil
	done := asked
	if !anyParked {
		done |= parked
	}
	was := e.token.giveAndClear(done)
	e.waiters.mu.Unlock()
	if was&asked != 0 || !listening && (was&stuck != 0 || anyParked) {
		e.sleeper.wakeBackground()
	}
}
