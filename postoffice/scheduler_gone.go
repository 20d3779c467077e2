package postoffice

import (
	"fmt"
	"time"

	"github.com/stepvan/stepvan/internal/text"
)

// maxReason bounds the text that tells why a node is gone.
const maxReason = 300

// depart marks m as gone. Before the start it only frees its position.
func (s *Scheduler) depart(m *member, left bool, reason string) {
	if m.gone {
		return
	}
	if !left {
		reason += s.attention.excuse(time.Now(), turn(s.o.HeartbeatInterval), s.o.HeartbeatTimeout)
	}
	m.gone, m.left, m.reason = true, left, text.Line(reason, maxReason)
	s.members.alive--
	s.keeper.depart(m)
	if m.stopping {
		s.members.stopping--
	}
	switch s.phase {
	case phaseWaiting:
		s.members.roles[m.info.Role].remove(m)
		s.o.Log.Warn().Msgf("%s before the start, its place is free again", lossOf(m).Text)
	case phaseStarting:
		f := lossOf(m)
		f.Text += " (while the cluster started)"
		s.abort(f)
	case phaseRunning:
		s.setEpoch(s.epoch + 1)
		s.losses.add(m)
		s.checkStop()
	case phaseStopped:
		s.o.Log.Debug().Msg(lossOf(m).Text)
	}
	s.checkEmpty()
}

// dismiss closes a session from this side, and keeps Stop waiting until the goodbye is out.
func (s *Scheduler) dismiss(c conn, reason string) {
	delete(s.conns, c)
	s.leaving[c] = time.Now()
	s.later(func() { c.finish(reason) })
}

// expel ends the session of a peer that broke the rules. A member is dead by that.
func (s *Scheduler) expel(m *member, f failure) {
	if m.registered() {
		s.o.Log.Warn().Msgf("expelled %s: %s", m.info, f.Text)
	} else if s.refusals.Allow() {
		s.o.Log.Warn().Msgf("expelled an unregistered peer: %s", f.Text)
	}
	s.send(m.conn, encode(opRefused, 0, f))
	s.dismiss(m.conn, "expelled")
	if m.registered() {
		s.depart(m, false, f.Text)
	}
}

// lossOf is the failure of what needs g, which has left or died.
func lossOf(g *member) failure {
	verb := "died"
	if g.left {
		verb = "left"
	}
	return failure{Kind: failLost, Node: g.info.Name(), Text: fmt.Sprintf("%s %s: %s", g.info, verb, g.reason)}
}

// checkSilence finds members that are silent, and visitors that do not register. looked reports whether the link has
// looked for their messages.
func (s *Scheduler) checkSilence(now time.Time, looked bool) {
	doubt := false
	for _, m := range s.conns {
		silent := now.Sub(m.seen)
		switch {
		case !m.registered():
			if now.Sub(m.opened) > s.o.JoinTimeout { // whatever it says meanwhile
				s.dismiss(m.conn, fmt.Sprintf("no registration within %s", seconds(s.o.JoinTimeout)))
			}
		case s.o.HeartbeatTimeout == 0:
		case tooLong(silent, s.o.HeartbeatTimeout, looked):
			s.expel(m, failure{Kind: failLost, Text: fmt.Sprintf("silent for %s (PS_HEARTBEAT_TIMEOUT)", seconds(silent))})
		case silent > s.o.HeartbeatTimeout/2:
			doubt = true
			if !m.suspect {
				m.suspect = true
				s.o.Log.Debug().Msgf("%s is silent for %s", m.info, seconds(silent))
			}
		}
	}
	if doubt && s.attention.lookNow != nil {
		s.later(s.attention.lookNow)
	}
	for c, since := range s.leaving {
		if now.Sub(since) > farewell {
			delete(s.leaving, c)
			s.later(c.drop) // it may read nothing, or be out of reach
		}
	}
}
