package postoffice

import "time"

// run is the scheduler's timer.
func (s *Scheduler) run() {
	defer close(s.done)
	defer s.o.Recover()
	if s.o.StartTimeout > 0 {
		defer time.AfterFunc(s.o.StartTimeout, s.expire).Stop()
	}
	tick(turn(s.o.HeartbeatInterval), s.quit, func(time.Time) { s.turn(time.Now()) })
}

// tick calls f at the end of each period until end is closed.
func tick(period time.Duration, end <-chan struct{}, f func(now time.Time)) {
	t := time.NewTicker(period)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			f(now)
		case <-end:
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
