package postoffice

import (
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
)

// run shows signs of life to the scheduler, and listens for its own.
func (f *Office) run() {
	defer f.o.Recover()
	every := turn(f.o.HeartbeatInterval)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			f.turn(now, every)
		case <-f.done:
			return
		}
	}
}

func (f *Office) turn(now time.Time, every time.Duration) {
	f.lock()
	defer f.unlock()
	if f.phase == officeOver || f.scheduler == nil {
		return
	}
	f.heard = f.heard.Add(pause(f.ticked, now, every))
	f.ticked = now
	if o := &f.o; o.HeartbeatInterval > 0 && now.Sub(f.beaten) >= o.HeartbeatInterval-every/2 {
		f.beaten = now
		f.scheduler.post(frame{op: opHeartbeat})
	}
	f.later(f.scheduler.pump)
	if silent := now.Sub(f.heard); f.o.HeartbeatTimeout > 0 && silent > f.o.HeartbeatTimeout {
		// No goodbye: a scheduler that lives after all must not take this for leaving on purpose.
		f.end(fmt.Errorf("%w: silent for %s (PS_HEARTBEAT_TIMEOUT)", stepvan.ErrPeerLost, seconds(silent)), "")
	}
}
