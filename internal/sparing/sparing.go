package sparing

import (
	"sync"
	"time"
)

// Lines lets the first lines of each period through and counts the others, whose number is said when the period ends.
// All methods may be called from any goroutine.
type Lines struct {
	most   int
	period time.Duration
	more   func(left int)

	mu    sync.Mutex
	said  int
	left  int
	timer *time.Timer // runs while a period does; nil otherwise
}

// New lets so many lines of each period through. The period begins with its first line. At its end more is
// called, from another goroutine, with the number of lines that were left out, if any were.
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
	if l.said == l.most {
		l.left++
		return false
	}
	l.said++
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
	l.said, l.left, l.timer = 0, 0, nil
	return left
}
