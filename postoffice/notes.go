package postoffice

import (
	"fmt"
	"slices"
	"time"
)

// notes are the lines that say whom something waits for.
type notes struct {
	next time.Time // next one about the start
	stop ripple
}

// ripple spaces lines out: each interval is twice the one before, because a
// barrier may rightly wait for hours.
type ripple struct {
	since, next time.Time
	step        time.Duration
}

// due reports whether it is time for a line.
func (r *ripple) due(now time.Time) bool {
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

// remark writes and sends the lines that are due.
func (s *Scheduler) remark(now time.Time) {
	switch s.phase {
	case phaseWaiting, phaseStarting:
		if !now.Before(s.notes.next) {
			s.notes.next = now.Add(s.o.WaitingEvery)
			s.note(s.living(), fmt.Sprintf("waiting %s for %s", seconds(now.Sub(s.begun)), s.missing()))
		}
	case phaseRunning:
		if s.stopping > 0 && s.notes.stop.due(now) {
			s.noteStop(now)
		}
		for k, r := range s.barriers.rounds {
			if r.spread.due(now) {
				s.note(slices.Clone(r.in), fmt.Sprintf("barrier over %s waits %s for %s", k.group, seconds(now.Sub(r.spread.since)), s.absent(k, r)))
			}
		}
	}
}

func (s *Scheduler) note(to []*member, text string) {
	s.o.Log.Info().Msg(text)
	f := encode(opWaiting, 0, waitingBody{Text: text})
	for _, m := range to {
		s.send(m.conn, f)
	}
}

func (s *Scheduler) noteStop(now time.Time) {
	var waiting []*member
	var busy []Peer
	for _, m := range s.living() {
		if m.stopping {
			waiting = append(waiting, m)
		} else {
			busy = append(busy, m.info)
		}
	}
	s.note(waiting, fmt.Sprintf("stop waits %s for %s, still working", seconds(now.Sub(s.notes.stop.since)), crowd(busy)))
}

// missing says who keeps the cluster from being complete.
func (s *Scheduler) missing() string {
	if s.phase != phaseWaiting {
		var silent []Peer
		for _, m := range s.living() {
			if !m.ready && s.roles[m.info.Role].told {
				silent = append(silent, m.info)
			}
		}
		return crowd(silent) + ": registered, but has not confirmed its peers"
	}
	var all []string
	for _, role := range slices.Backward(roles[1:]) {
		free, count := s.roles[role].missing()
		switch {
		case count == 0:
		case count == len(free):
			all = append(all, fmt.Sprintf("%s %s", role, ranks(free)))
		default:
			all = append(all, fmt.Sprintf("%d more of %s %s", count, role, ranks(free)))
		}
	}
	return conjunction(all) + ": not registered yet" + aside(s.o.Meeting)
}

// absent says who has not entered a round.
func (s *Scheduler) absent(k barrierKey, r *round) string {
	in := map[*member]bool{}
	for _, m := range r.in {
		in[m] = true
	}
	var out []Peer
	for _, m := range append([]*member{s.self}, s.living()...) {
		here := in[m] || (!k.instances && r.nodes[crew{m.info.Role, m.info.NodeRank}] > 0)
		if k.group.Has(m.info.Role) && !here {
			out = append(out, m.info)
		}
	}
	return crowd(out)
}
