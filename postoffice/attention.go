package postoffice

import (
	"fmt"
	"time"
)

// attention tells how much the silence of others means. A process that is stopped, or gets little of the processors,
// hears nothing, whatever the others say. The lock of its owner guards it.
type attention struct {
	ticked  time.Time     // last turn of the timer
	looks   func() uint64 // how often the link has looked for messages; nil: it always does
	lookNow func()        // has the link look before the next turn
	last    [2]uint64     // looks at the last two turns
	absence time.Duration // how long the timer was kept from running when it last was for too long
	resumed time.Time     // when that ended
}

// patience is how many times the timeout an instance may be silent while the link does not look.
const patience = 4

// turn is called at each turn of a timer, which are to follow each other after so much time. It returns for how long
// the timer was kept from running. looked reports whether the link has looked twice since the turn before the last one.
// So it has begun and ended a look in that time.
func (a *attention) turn(now time.Time, every time.Duration) (stopped time.Duration, looked bool) {
	stopped = pause(a.ticked, now, every)
	a.ticked = now
	if a.looks == nil {
		return stopped, true
	}
	n := a.looks()
	looked = n-a.last[0] >= 2
	a.last = [2]uint64{a.last[1], n}
	return stopped, looked
}

// missed takes note of a turn that came late. It reports whether the others may have given the owner up meanwhile.
func (a *attention) missed(stopped, timeout time.Duration) bool {
	if timeout == 0 || stopped <= timeout {
		return false
	}
	a.absence, a.resumed = stopped, a.ticked
	return true
}

// excuse says that a node may be gone because the owner was kept from running lately. It is "" otherwise. Connections
// may break before the timer notices.
func (a *attention) excuse(now time.Time, every, timeout time.Duration) string {
	absence := pause(a.ticked, now, every)
	if absence <= timeout && now.Sub(a.resumed) < timeout {
		absence = a.absence
	}
	if timeout == 0 || absence <= timeout {
		return ""
	}
	return fmt.Sprintf("; the scheduler's process had not run for %s, so others may have given the scheduler up", seconds(absence))
}

// pause is how long a timer that came late was kept from running: the silence of
// others during that time says nothing about them.
func pause(last, now time.Time, every time.Duration) time.Duration {
	if late := now.Sub(last) - every; late > every {
		return late
	}
	return 0
}

// tooLong reports whether an instance that is silent for so long is lost.
func tooLong(silent, timeout time.Duration, looked bool) bool {
	return timeout > 0 && silent > timeout && (looked || silent > patience*timeout)
}
