package progress

import (
	"errors"
	"sync/atomic"
	"time"
)

const (
	// leastSleep is the shortest sleep before an answer is due that saves more than it costs.
	leastSleep = int64(150 * time.Microsecond)
	// firstLate is how late a sleep with a limit ends, until the engine has measured it, and mostLate bounds it.
	firstLate, mostLate = int64(150 * time.Microsecond), int64(300 * time.Microsecond)
	// lateShare: an unusually late end of a sleep loses this share of its effect with each sleep.
	lateShare = 64
	// mostAwake bounds the polling by count, for clocks that stand still or go back.
	mostAwake = 100 * mostRounds
)

// staysAwake reports whether to poll again after so long without events. A wait without a history spins and yields for
// a short time. With a history, it polls as long as its answer is likely to come soon, and sets wakeAt otherwise.
func (w *wait) staysAwake(b *budget, now, idle int64, rounds int) bool {
	if idle < b.spin && rounds < mostRounds {
		return true
	}
	if b.yielded == 0 {
		b.yielded = now
		b.preempted() // from here on
	}
	switch {
	case b.endless:
		b.yieldAtTimes(now)
		return true
	case b.history == nil:
		return b.spinOrYield(idle, rounds)
	case rounds >= mostAwake, b.lost > 0, cpus.wanted(), cpus.quota.usedUp(now):
		return false
	case now < b.pollUntil:
		cpus.sample(now)
		return b.yieldAtTimes(now)
	}
	late := w.engine.policy.late
	f := b.history.forecast(now-w.start, late+leastSleep)
	if f.pollUntil > 0 {
		b.pollUntil = w.start + f.pollUntil
		return b.yieldAtTimes(now)
	}
	if f.endsAt > 0 {
		w.wakeAt = w.start + f.endsAt - late
	}
	return false
}

// noteWake notes how late a sleep ended that was to end before the event. Messages that came later do not count.
func (w *wait) noteWake(now int64) {
	if w.wakeAt > 0 && now >= w.wakeAt {
		p := &w.engine.policy
		p.late = min(mostLate, max(now-w.wakeAt, p.late-p.late/lateShare))
	}
}

// noteLength adds the length of a wait that is over to the history, if a waiter does not spin for so long anyway.
func (w *wait) noteLength(now int64) {
	w.noted = true
	if length := now - w.start; length > int64(defaultSpin) {
		if h := w.engine.history(w.ev.Kind); h != nil {
			h.note(length)
		}
	}
}

// noteEnd does that for a wait that has parked or failed. A wait whose time was up would have lasted longer.
func (w *wait) noteEnd(err error) {
	switch {
	case err == nil:
		w.noteLength(nanotime())
	case errors.Is(err, errWaitTimeout), errors.Is(err, errContextEnded):
		w.noteLength(w.start + longestNoted)
	}
}

// histories has the history of each kind. The first wait of a kind makes it.
type histories [kinds]atomic.Pointer[history]

// history returns the history of a kind, and nil where there is nothing to learn.
func (e *Engine) history(k Kind) *history {
	if k == Rare || k >= kinds || !e.policy.learns() {
		return nil
	}
	x := &e.histories[k]
	if h := x.Load(); h != nil {
		return h
	}
	x.CompareAndSwap(nil, new(history))
	return x.Load()
}
