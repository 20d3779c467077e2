package postoffice

import "time"

// run is the scheduler's timer.
func (s *Scheduler) run() {
	defer close(s.done)
	defer s.o.Recover()
	tick := time.NewTicker(turn(s.o.HeartbeatInterval))
	defer tick.Stop()
	var deadline <-chan time.Time
	if s.o.StartTimeout > 0 {
		t := time.NewTimer(s.o.StartTimeout)
		defer t.Stop()
		deadline = t.C
	}
	for {
		select {
		case <-tick.C:
			s.turn(time.Now())
		case <-deadline:
			s.expire()
		case <-s.quit:
			return
		}
	}
}

// maxTurn is the longest time between two turns of a timer.
const maxTurn = 250 * time.Millisecond

// turn is the time between two turns: short against the heartbeat, so that a loss is noticed in time.
func turn(interval time.Duration) time.Duration {
	if interval <= 0 {
		return maxTurn
	}
	return min(maxTurn, max(interval/2, time.Millisecond))
}

// pause is how long a timer that came late was kept from running: the silence of
// others during that time says nothing about them.
func pause(last, now time.Time, every time.Duration) time.Duration {
	if late := now.Sub(last) - every; late > every {
		return late
	}
	return 0
}

func (s *Scheduler) turn(now time.Time) {
	s.lock()
	defer s.unlock()
	if s.phase == phaseClosed {
		return
	}
	if p := pause(s.ticked, now, turn(s.o.HeartbeatInterval)); p > 0 {
		for _, m := range s.conns {
			m.opened, m.seen = m.opened.Add(p), m.seen.Add(p)
		}
	}
	s.ticked = now
	s.checkSilence(now)
	s.reminders.sendDue(now)
	s.checkEmpty()
	for c := range s.conns {
		s.later(c.pump)
	}
}
