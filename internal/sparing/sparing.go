package sparing

import (
	"sync"
	"time"
)

// Lines allows the first lines of each period, and counts the others. At the end of the period it
// reports their number. Any goroutine may call its methods.
type Lines struct {
	most   int
	period time.Duration
	more   func(left int)

	mu      sync.Mutex
	allowed int
	left    int
	timer   *time.Timer // runs during a period; nil otherwise
}

// New allows most lines in each period. A period begins with its first line. At its end Lines calls
// more, from another goroutine, with the number of omitted lines, unless it is 0.
func New(most int, period time.Duration, more func(left int)) *Lines {
	return &Lines{most: most, period: period, more: more}
}

// Allow reports whether the next line may be written.
func (l *Lines) Allow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == nil {
		l.timer = time.AfterFunc(l.period, l.End)
	}
	if l.allowed == l.most {
		l.left++
		return false
	}
	l.allowed++
	return true
}

// End ends the period at once.
func (l *Lines) End() {
	if left := l.reset(); left > 0 {
		l.more(left)
	}
}

func (l *Lines) reset() (left int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	left = l.left
	l.allowed, l.left, l.timer = 0, 0, nil
	return left
}
