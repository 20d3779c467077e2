package postoffice

import (
	"fmt"
	"time"
)

// opened implements service.
func (s *Scheduler) opened(c conn) {
	s.lock()
	defer s.unlock()
	if s.phase == phaseClosed {
		s.dismiss(c, "the scheduler has stopped")
		return
	}
	now := time.Now()
	s.conns[c] = &member{conn: c, opened: now, seen: now}
}

// dismiss closes a session from this side, and keeps Stop waiting until the goodbye is out.
func (s *Scheduler) dismiss(c conn, reason string) {
	delete(s.conns, c)
	s.leaving[c] = time.Now()
	s.later(func() { c.finish(reason) })
}

// deliver implements service.
func (s *Scheduler) deliver(c conn, f frame) {
	s.lock()
	defer s.unlock()
	m := s.conns[c]
	if m == nil {
		return // dismissed already
	}
	s.hear(m)
	if err := s.obey(m, f); err != nil {
		s.expel(m, failure{Kind: failRefused, Text: err.Error()})
	}
}

// obey does what a message asks for. An error is the peer's fault and costs it its session.
func (s *Scheduler) obey(m *member, f frame) error {
	switch {
	case f.op == opHeartbeat:
		s.send(m.conn, frame{op: opHeartbeat, request: f.request})
		return nil
	case f.op == opJoin:
		return s.join(m, f)
	case m.info.Role == "":
		return malformed(f.op, "before registration")
	case f.op == opReady:
		return s.confirm(m)
	case !m.ready && f.op <= opStopped:
		return malformed(f.op, "before the start")
	}
	switch f.op {
	case opBarrier, opWithdraw:
		return s.round(m, f)
	case opStop:
		return s.stopOf(m)
	}
	s.o.Log.Debug().Stringer("node", m.info).Uint8("op", uint8(f.op)).Msg("unknown control message ignored")
	return nil
}

func (s *Scheduler) join(m *member, f frame) error {
	if m.info.Role != "" {
		return malformed(f.op, "registered already")
	}
	if err := decode(f, &m.want); err != nil {
		return err
	}
	w := &m.want
	m.info = Peer{
		Role: w.Role, Rank: w.Rank, LocalRank: w.Instance, GroupSize: w.GroupSize, Host: w.Host, PID: w.PID,
		Addresses: w.Addresses, Incarnation: m.conn.identity().Incarnation,
	}
	if err := s.vet(m); err != nil {
		s.refuse(m, err)
		return nil
	}
	m.want.Shared, m.want.Addresses = nil, nil
	m.conn.member()
	s.alive++
	s.o.Log.Info().Msgf("%s registered, %d of %d nodes", m.info, s.alive, s.expected())
	s.send(m.conn, encode(opJoined, 0, nil))
	if s.complete() {
		s.start()
	}
	return nil
}

// vet registers m or says why not.
func (s *Scheduler) vet(m *member) error {
	if s.phase != phaseWaiting {
		return s.tooLate(m)
	}
	if err := disagreement(s.o.Shared, m.want.Shared); err != nil {
		return err
	}
	if m.want.GroupSize != s.o.GroupSize {
		return fmt.Errorf("DMLC_GROUP_SIZE is %d at the node and %d at the scheduler: set the same value on every node", m.want.GroupSize, s.o.GroupSize)
	}
	return s.roles[m.info.Role].add(m)
}

func (s *Scheduler) tooLate(m *member) error {
	for _, o := range s.roles[m.info.Role].members {
		if o.gone && o.info.Rank == m.info.Rank {
			return fmt.Errorf("%s died or left (%s), and a single node cannot come back: restart the cluster", o.info, o.reason)
		}
	}
	return fmt.Errorf("the cluster is complete, with %d workers and %d servers, and nodes cannot join later: restart all nodes together, or set DMLC_NUM_WORKER and DMLC_NUM_SERVER",
		s.o.Workers, s.o.Servers)
}

// refuse tells m, who is not registered, why, and ends its session. The others notice nothing.
func (s *Scheduler) refuse(m *member, err error) {
	if s.strange.Allow() {
		s.o.Log.Warn().Msgf("refused %s: %v", m.info, err)
	}
	s.send(m.conn, encode(opRefused, 0, failure{Kind: failRefused, Text: err.Error()}))
	s.dismiss(m.conn, "refused")
}

// expel ends the session of a node that broke the rules; a registered one is dead by that.
func (s *Scheduler) expel(m *member, f failure) {
	if m.info.Role != "" || s.strange.Allow() {
		s.o.Log.Warn().Msgf("expelled %s: %s", nameOr(m.info, "an unregistered peer"), f.Text)
	}
	s.send(m.conn, encode(opRefused, 0, f))
	s.dismiss(m.conn, "expelled")
	if m.info.Role != "" {
		s.depart(m, false, f.Text)
	}
}

func nameOr(n Peer, unknown string) string {
	if n.Role == "" {
		return unknown
	}
	return n.String()
}

func (s *Scheduler) expected() int { return s.o.Workers + s.o.Servers + s.o.Peers }

func (s *Scheduler) complete() bool { return s.alive == s.expected() }
