package progress

import (
	"sync"
	"time"
)

var origin = time.Now()

// nanotime is a monotonic clock in ns, never 0.
func nanotime() int64 { return int64(time.Since(origin)) + 1 }

var timers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}}

func takeTimer(d time.Duration) *time.Timer {
	t := timers.Get().(*time.Timer)
	t.Reset(d)
	return t
}

func putTimer(t *time.Timer) {
	t.Stop()
	timers.Put(t)
}
