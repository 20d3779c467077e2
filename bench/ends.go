package bench

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
)

// ends are when a round began at a node of a resharding, and when each of its runs ended, in ns of the clock of the
// machine. A run is over when it has ended at the last destination, which no process can tell by itself.
type ends []int64

// endsAtOnce is how many runs a round may have without an allocation.
const endsAtOnce = 1 << 16

func newEnds() ends { return make(ends, 0, endsAtOnce) }

// begin forgets the last round.
func (e *ends) begin() {
	*e = (*e)[:0]
	e.add()
}

func (e *ends) add() { *e = append(*e, machineTime()) }

// machineTime is the same in all processes of the machine.
func machineTime() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // fails for a wrong clock only
	return t.Nano()
}

// addRuns adds how long each run of a round took: from the end of the one before it at the last destination to its own
// end there. The first run begins with the first destination.
func (l latencies) addRuns(all []ends) error {
	if len(all) == 0 || slices.ContainsFunc(all, func(e ends) bool { return len(e) != len(all[0]) }) {
		return errs.Invalid("the destinations have not run a plan equally often")
	}
	last := int64(0)
	for i := range all[0] {
		now := all[0][i]
		for _, e := range all {
			if i == 0 {
				now = min(now, e[i])
			} else {
				now = max(now, e[i])
			}
		}
		if i > 0 {
			l.add(time.Duration(now - last))
		}
		last = now
	}
	return nil
}
