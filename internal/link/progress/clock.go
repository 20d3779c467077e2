package progress

import (
	"sync"
	"time"

	"github.com/stepvan/stepvan/trace"
)

// nanotime is a monotonic clock in ns, used for budgets and absences. Never 0. Tests replace it by one that jumps.
var nanotime = trace.Now

// timerPool recycles the timers of one engine. Engines do not share timers: a timer belongs to the synctest bubble that
// made it.
type timerPool struct {
	mu   sync.Mutex
	free []*time.Timer
}

func (l *timerPool) take(d time.Duration) *time.Timer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.free); n > 0 {
		t := l.free[n-1]
		l.free = l.free[:n-1]
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

func (l *timerPool) put(t *time.Timer) {
	t.Stop()
	l.mu.Lock()
	l.free = append(l.free, t)
	l.mu.Unlock()
}
