package postoffice

import (
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
)

// lost implements service.
func (s *Scheduler) lost(c conn, err error) {
	s.lock()
	defer s.unlock()
	m := s.conns[c]
	delete(s.conns, c)
	delete(s.leaving, c)
	if m != nil && m.info.Role != "" && s.phase != phaseClosed {
		left := errors.Is(err, link.ErrLeft) || errors.Is(err, stepvan.ErrClosed) && !errors.Is(err, stepvan.ErrPeerLost)
		s.depart(m, left, printable(err.Error(), maxReason))
	}
	s.settle()
}

// maxReason bounds the text that tells why a node is gone.
const maxReason = 300

// depart takes m out of the living. Before the start it only frees its seat.
func (s *Scheduler) depart(m *member, left bool, reason string) {
	if m.gone {
		return
	}
	m.gone, m.left, m.reason = true, left, printable(reason, maxReason)
	s.alive--
	if m.stopping {
		s.stopping--
	}
	switch s.phase {
	case phaseWaiting:
		s.roles[m.info.Role].remove(m)
		s.o.Log.Warn().Msgf("%s before the start, its place is free again", needed(m).Text)
	case phaseStarting:
		f := needed(m)
		f.Text += " (while the cluster started)"
		s.abort(f)
	case phaseRunning:
		s.setEpoch(s.epoch + 1)
		s.report(m)
		s.breakRounds(m)
		s.checkStop()
	case phaseStopped:
		s.o.Log.Debug().Msg(needed(m).Text)
	}
	s.settle()
}

// report logs a loss and tells everybody, together with others that follow shortly.
func (s *Scheduler) report(m *member) {
	if s.firsts[m.info.Role] == nil {
		s.firsts[m.info.Role] = m
	}
	event := s.o.Log.Error()
	if m.left {
		event = s.o.Log.Info()
	}
	event.Uint64("epoch", s.epoch).Msg(needed(m).Text)
	if len(s.news) == 0 {
		time.AfterFunc(gather, func() {
			defer s.o.Recover()
			s.tell()
		})
	}
	n := m.info
	s.news = append(s.news, goneNode{ID: n.ID, Role: n.Role, Rank: n.Rank, Host: n.Host, PID: n.PID, Left: m.left, Reason: m.reason})
}

// tell sends the news of losses that have been gathered.
func (s *Scheduler) tell() {
	s.lock()
	defer s.unlock()
	s.spread()
}

// spread sends the news of losses.
func (s *Scheduler) spread() {
	epoch := s.epoch - uint64(len(s.news))
	for _, part := range parts(s.news) {
		epoch += uint64(len(part))
		s.broadcast(encode(opGone, 0, map[string]any{"epoch": epoch, "nodes": part}))
	}
	s.news = nil
}

// hear notes a sign of life.
func (s *Scheduler) hear(m *member) {
	m.seen = time.Now()
	if m.suspect {
		m.suspect = false
		s.o.Log.Info().Msgf("%s speaks again", m.info)
	}
}

// listen finds registered nodes that are silent, and visitors that do not register.
func (s *Scheduler) listen(now time.Time) {
	for _, m := range s.conns {
		silent := now.Sub(m.seen)
		switch {
		case m.info.Role == "":
			if now.Sub(m.opened) > s.o.JoinTimeout { // whatever it says meanwhile
				s.dismiss(m.conn, fmt.Sprintf("no registration within %s", seconds(s.o.JoinTimeout)))
			}
		case s.o.HeartbeatTimeout == 0:
		case silent > s.o.HeartbeatTimeout:
			s.expel(m, failure{Kind: failLost, Text: fmt.Sprintf("silent for %s (PS_HEARTBEAT_TIMEOUT)", seconds(silent))})
		case silent > s.o.HeartbeatTimeout/2 && !m.suspect:
			m.suspect = true
			s.o.Log.Debug().Msgf("%s is silent for %s", m.info, seconds(silent))
		}
	}
	for c, since := range s.leaving {
		if now.Sub(since) > farewell {
			delete(s.leaving, c)
			s.later(c.drop) // it may read nothing, or be out of reach
		}
	}
}
