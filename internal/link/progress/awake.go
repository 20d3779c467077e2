package progress

import (
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
	switch {
	case idle < b.spin && rounds < mostRounds:
		return true
	case b.yielded == 0:
		b.yielded = now
		b.policy.preempted() // from here on
	}
	switch {
	case b.endless:
		b.yieldAtTimes(now)
		return true
	case b.history == nil:
		return b.spinOrYield(idle, rounds)
	case rounds >= mostAwake, b.lost > 0, cpus.wanted():
		return false
	case now < b.pollUntil:
		cpus.sample(now)
		return b.yieldAtTimes(now)
	}
	late := w.engine.policy.late
	o := b.history.forecast(now-w.start, late+leastSleep)
	if o.pollUntil > 0 {
		b.pollUntil = w.start + o.pollUntil
		return b.yieldAtTimes(now)
	}
	if o.endsAt == 0 {

	} else {

	}
	if o.endsAt > 0 {
		w.wakeAt = w.start + o.endsAt - late
	}
	return false
}

// noteLate notes how late a sleep with a limit ended. Messages may have come since then.
func (w *wait) noteLate(now int64) {
	if w.wakeAt > 0 && now >= w.wakeAt {
		p := &w.engine.policy
		p.late = min(mostLate, max(now-w.wakeAt, p.late-p.late/lateShare))
	}
}

// noteLong notes the length of a wait that is over, if it was longer than the waiter spins in any case.
func (w *wait) noteLong(now, spin int64) {
	if now-w.start > spin {
		w.note(now)
	}
}

// note notes the length of a wait that is over.
func (w *wait) note(now int64) {
	w.noted = true
	if h := w.engine.histories.of(w.ev.Kind); h != nil && now > w.start {
		h.note(now - w.start)
	}
}

// histories has the history of each kind. The first long wait of a kind makes it.
type histories [kinds]atomic.Pointer[history]

// of returns the history of a kind, and nil for the kind Rare.
func (x *histories) of(k Kind) *history {
	if k == Rare || k >= kinds {
		return nil
	}
	if h := x[k].Load(); h != nil {
		return h
	}
	x[k].CompareAndSwap(nil, new(history))
	return x[k].Load()
}
