package postoffice

import (
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
)

// signsOfLife are the times at which an office and its scheduler heard of each other. The office's lock guards them.
type signsOfLife struct {
	heard  time.Time // the scheduler's last sign of life
	sent   time.Time // own last sign of life
	ticked time.Time // last turn of the timer
}

// silence is how long the scheduler has said nothing. Time in which the office's own timer was kept from running does
// not count.
func (t *signsOfLife) silence(now time.Time, every time.Duration) time.Duration {
	t.heard = t.heard.Add(pause(t.ticked, now, every))
	t.ticked = now
	return now.Sub(t.heard)
}

// due reports whether it is time for an own sign of life, and takes note of it.
func (t *signsOfLife) due(now time.Time, interval, every time.Duration) bool {
	if interval == 0 || now.Sub(t.sent) < interval-every/2 {
		return false
	}
	t.sent = now
	return true
}

// run shows signs of life to the scheduler, and looks for its own.
func (f *Office) run() {
	defer f.o.Recover()
	every := turn(f.o.HeartbeatInterval)
	tick(every, f.done, func(now time.Time) { f.turn(now, every) })
}

func (f *Office) turn(now time.Time, every time.Duration) {
	f.lock()
	defer f.unlock()
	if f.phase == officeOver || f.scheduler == nil {
		return
	}
	silent := f.signs.silence(now, every)
	if f.signs.due(now, f.o.HeartbeatInterval, every) {
		f.scheduler.post(frame{op: opHeartbeat})
	}
	f.later(f.scheduler.pump)
	if f.o.HeartbeatTimeout > 0 && silent > f.o.HeartbeatTimeout {
		// No goodbye: a scheduler that lives after all must not take this for leaving on purpose.
		f.end(fmt.Errorf("%w: silent for %s (PS_HEARTBEAT_TIMEOUT)", stepvan.ErrPeerLost, seconds(silent)), "")
	}
}
