package postoffice

import (
	"fmt"
	"slices"
	"time"
)

// reminders are the lines that name the nodes that something waits for.
type reminders struct {
	s    *Scheduler
	next time.Time // the next one about the start
	stop backoff
}

// backoff spaces lines out: each interval is twice the one before, because a
// barrier may rightly wait for hours.
type backoff struct {
	since, next time.Time
	step        time.Duration
}

// due reports whether it is time for a line.
func (r *backoff) due(now time.Time) bool {
	if r.next.IsZero() {
		r.next = r.since.Add(r.step)
	}
	if now.Before(r.next) {
		return false
	}
	r.step *= 2
	r.next = now.Add(r.step)
	return true
}

// sendDue writes and sends the lines that are due.
func (r *reminders) sendDue(now time.Time) {
	s := r.s
	switch s.phase {
	case phaseWaiting, phaseStarting:
		if !now.Before(r.next) {
			r.next = now.Add(s.o.WaitingEvery)
			r.send(s.members.living(), fmt.Sprintf("waiting %s for %s", seconds(now.Sub(s.begun)), s.missing()))
		}
	case phaseRunning:
		if s.members.stopping > 0 && r.stop.due(now) {
			busy := only(s.members.living(), func(m *member) bool { return !m.stopping })
			waiting := only(s.members.living(), func(m *member) bool { return m.stopping })
			r.send(waiting, fmt.Sprintf("stop waits %s for %s, still working", seconds(now.Sub(r.stop.since)), instances(busy)))
		}
		for k, round := range s.barriers.rounds {
			if round.reminder.due(now) {
				r.send(slices.Clone(round.in), fmt.Sprintf("barrier over %s waits %s for %s", k.Group, seconds(now.Sub(round.reminder.since)), s.members.absent(k, round)))
			}
		}
	}
}

func (r *reminders) send(to []*member, text string) {
	r.s.o.Log.Info().Msg(text)
	f := encode(opWaiting, 0, waitingBody{Text: text})
	for _, m := range to {
		r.s.send(m.conn, f)
	}
}
