package limit

import (
	"runtime"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/sys"
)

// Looks in a row. Offering the core late would save little where it is idle, and cost
// milliseconds where the other side waits for it.
const (
	emptyBeforeYield = 1 << 8 // of a socket some 50 us, of memory less than 1
	emptyBeforeClock = 1 << 14
	silentTime       = 20 * time.Second
)

// spin counts looks in a row that found nothing. One goroutine at a time.
type spin struct {
	crowded bool // other processes need this core
	inside  bool // another goroutine does
	empty   int
	since   time.Time // of the first look at the clock among them
}

// found resets the count.
func (s *spin) found() { s.empty = 0 }

// missed counts a look that found nothing. After many it yields the core, and after
// silentTime it gives up on the other side.
func (s *spin) missed() error {
	s.empty++
	switch {
	case s.inside:
		runtime.Gosched()
	case s.crowded, s.empty%emptyBeforeYield == 0:
		sys.Yield()
	}
	if s.empty == emptyBeforeClock {
		s.since = time.Now()
	}
	if s.empty%emptyBeforeClock == 0 && time.Since(s.since) > silentTime {
		return errs.Invalid("the other side has been silent for %v", silentTime)
	}
	return nil
}
