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

func (s *Scheduler) turn(now time.Time) {
	s.lock()
	defer s.unlock()
	if s.phase == phaseClosed {
		return
	}
	stopped, looked := s.attention.turn(now, turn(s.o.HeartbeatInterval))
	if s.attention.missed(stopped, s.o.HeartbeatTimeout) {
		s.o.Log.Warn().Msgf("this process did not run for %s, longer than PS_HEARTBEAT_TIMEOUT: the nodes may have given this scheduler up", seconds(stopped))
	}
	if stopped > 0 {
		for _, m := range s.conns {
			m.opened, m.seen = m.opened.Add(stopped), m.seen.Add(stopped)
		}
	}
	s.checkSilence(now, looked)
	s.reminders.sendDue(now)
	s.checkEmpty()
	for c := range s.conns {
		s.later(c.pump)
	}
}
