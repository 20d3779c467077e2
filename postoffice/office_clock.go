package postoffice

import (
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
)

// signsOfLife are the times at which an office and its scheduler heard of each other. The office's lock guards them.
type signsOfLife struct {
	heard time.Time // the scheduler's last sign of life
	sent  time.Time // own last sign of life
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
	stopped, looked := f.attention.turn(now, every)
	f.signs.heard = f.signs.heard.Add(stopped)
	silent := now.Sub(f.signs.heard)
	if f.signs.due(now, f.o.HeartbeatInterval, every) {
		f.scheduler.post(frame{op: opHeartbeat})
	}
	f.later(f.scheduler.pump)
	if f.attention.lookNow != nil && f.o.HeartbeatTimeout > 0 && silent > f.o.HeartbeatTimeout/2 {
		f.later(f.attention.lookNow)
	}
	if tooLong(silent, f.o.HeartbeatTimeout, looked) {
		// No goodbye: a scheduler that lives after all must not take this for leaving on purpose.
		f.end(fmt.Errorf("%w: silent for %s (PS_HEARTBEAT_TIMEOUT)", stepvan.ErrPeerLost, seconds(silent)), "")
	}
}
