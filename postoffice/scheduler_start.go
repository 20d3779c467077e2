package postoffice

import (
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
)

// start fixes ranks and gives the first view to all but the workers.
func (s *Scheduler) start() {
	s.phase = phaseStarting
	s.setEpoch(1)
	for role := range s.o.sizes() {
		s.members.roles[role].assign()
	}
	s.continueStart()
}

// continueStart tells the next roles when those before have confirmed: servers first, so that they know every worker
// that dials them. Peers dial each other, so no order is right for them: they wait at a barrier before they dial.
func (s *Scheduler) continueStart() {
	if s.phase != phaseStarting {
		return
	}
	s.sendViews(s.members.roles[stepvan.RoleServer])
	s.sendViews(s.members.roles[stepvan.RolePeer])
	if !s.members.roles[stepvan.RoleServer].confirmed() {
		return
	}
	s.sendViews(s.members.roles[stepvan.RoleWorker])
	if !s.members.roles[stepvan.RoleWorker].confirmed() || !s.members.roles[stepvan.RolePeer].confirmed() {
		return
	}
	s.phase = phaseRunning
	s.o.Log.Info().Msgf("cluster complete after %s: %v", seconds(time.Since(s.begun)), &s.o)
	s.engine.Set(&s.started)
}

// sendViews sends the members of a role their ranks and their peers. The
// list of peers is encoded once for all instances that share it: those of one local rank, or all with the role peer.
func (s *Scheduler) sendViews(r *registry) {
	if r.reported {
		return
	}
	r.reported = true
	lists := map[LocalRank][]frame{}
	counts := map[LocalRank]int{}
	for _, m := range r.members {
		i := m.info.LocalRank
		if s.o.Pairing == stepvan.PairAll || r.role == stepvan.RolePeer {
			i = 0
		}
		frames, known := lists[i]
		if !known {
			peers := s.members.peersOf(m.info)
			for _, page := range pages(peers) {
				frames = append(frames, encode(opPeers, 0, map[string]any{"nodes": page}))
			}
			lists[i], counts[i] = frames, len(peers)
		}
		self := m.info
		self.Addresses = nil // the node knows them
		s.send(m.conn, encode(opStart, 0, startBody{Self: self, Epoch: s.epoch, Peers: counts[i]}))
		for _, f := range frames {
			s.send(m.conn, f)
		}
	}
}

// abort ends a start that cannot succeed: all members get the reason.
func (s *Scheduler) abort(f failure) {
	s.o.Log.Error().Msg("start failed: " + f.Text)
	s.phase, s.err = phaseFailed, f.err("start", "")
	s.calls.fail(s.err)
	s.keeper.own.fail(s.err)
	for _, m := range s.members.living() {
		m.gone = true
		s.send(m.conn, encode(opRefused, 0, f))
		s.dismiss(m.conn, "the start failed")
	}
	s.members.alive = 0
	s.engine.Set(&s.started)
	s.checkEmpty()
}

// expire is the start deadline.
func (s *Scheduler) expire() {
	defer s.o.Recover()
	s.lock()
	defer s.unlock()
	if s.phase == phaseWaiting || s.phase == phaseStarting {
		s.abort(failure{Kind: failTimeout, Text: fmt.Sprintf("%s after %s (STEPVAN_START_TIMEOUT): start what is missing, or correct %s",
			s.missing(), seconds(s.o.StartTimeout), s.o.countNames())})
	}
}
