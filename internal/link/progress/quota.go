package progress

import (
	"sync/atomic"
	"time"
)

// quota tells whether the processes of the control group have lately used up their quota of processor time. The kernel
// then stops them for the rest of a period, which costs more than polling saves.
type quota struct {
	readAt    atomic.Int64 // the last look at the kernel's counter, by nanotime; 0: none yet
	throttled atomic.Int64 // the counter then
	until     atomic.Int64 // how long the quota counts as used up, by nanotime
}

const (
	// quotaEvery is the time between two looks. It is the period of the kernel's quotas, unless somebody changes it.
	quotaEvery = int64(100 * time.Millisecond)
	// usedUpFor is how long waiters do not poll for long after the quota was used up. Every attempt after that may cost
	// one period.
	usedUpFor = int64(10 * time.Second)
)

// look reads the counter when that is due.
func (q *quota) look(now int64, throttled func() int64) {
	last := q.readAt.Load()
	if last != 0 && now-last < quotaEvery || !q.readAt.CompareAndSwap(last, now) {
		return
	}
	count := throttled()
	if before := q.throttled.Swap(count); last != 0 && count > before {
		q.until.Store(now + usedUpFor)
	}
}

// usedUp reports whether the quota was used up lately.
func (q *quota) usedUp(now int64) bool { return now < q.until.Load() }
