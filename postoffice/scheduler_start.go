package postoffice

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/stepvan/stepvan"
)

// start fixes ranks and gives the first view to all but the workers.
func (s *Scheduler) start() {
	s.phase = phaseStarting
	s.setEpoch(1)
	for role := range s.o.sizes() {
		s.roles[role].assign()
	}
	s.proceed()
}

// proceed moves the start on when those before have confirmed: servers and
// peers first, so that they know every worker who dials them.
func (s *Scheduler) proceed() {
	if s.phase != phaseStarting {
		return
	}
	s.introduce(s.roles[stepvan.RoleServer])
	s.introduce(s.roles[RolePeer])
	if !s.roles[stepvan.RoleServer].confirmed() || !s.roles[RolePeer].confirmed() {
		return
	}
	s.introduce(s.roles[stepvan.RoleWorker])
	if !s.roles[stepvan.RoleWorker].confirmed() {
		return
	}
	s.phase = phaseRunning
	s.o.Log.Info().Msgf("cluster complete after %s: %d workers, %d servers", seconds(time.Since(s.begun)), s.o.Workers, s.o.Servers)
	s.engine.Set(&s.started)
}

// introduce tells the members of a role who they are and whom they talk to. The
// list of peers is encoded once for all instances of one index, who share it.
func (s *Scheduler) introduce(r *registry) {
	if r.told {
		return
	}
	r.told = true
	lists := map[LocalRank][]frame{}
	counts := map[LocalRank]int{}
	for _, m := range r.members {
		i := m.info.LocalRank
		if s.o.Pairing == stepvan.PairAll || r.role == RolePeer {
			i = 0
		}
		frames, known := lists[i]
		if !known {
			peers := s.peersOf(m.info)
			for _, part := range parts(peers) {
				frames = append(frames, encode(opPeers, 0, map[string]any{"nodes": part}))
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

// peersOf lists whom a node talks to, by role and rank. Peers find themselves in
// their list too, so that they can share it.
func (s *Scheduler) peersOf(n Peer) []Peer {
	var out []Peer
	for role := range s.o.sizes() {
		for _, m := range s.roles[role].members {
			if lists(s.o.Pairing, n, m.info) {
				out = append(out, m.info)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Peer) int {
		return cmp.Or(cmp.Compare(roleNumber(a.Role), roleNumber(b.Role)), cmp.Compare(a.Rank, b.Rank))
	})
	return out
}

// confirm notes that m knows its peers.
func (s *Scheduler) confirm(m *member) error {
	if s.epoch == 0 || m.ready {
		return malformed(opReady, "not expected")
	}
	m.ready = true
	s.roles[m.info.Role].ready++
	s.proceed()
	return nil
}

// abort ends a start that cannot succeed: everybody gets the reason.
func (s *Scheduler) abort(f failure) {
	s.o.Log.Error().Msg("start failed: " + f.Text)
	s.phase, s.err = phaseFailed, f.err("start", "")
	s.caller.fail(s.err)
	for _, m := range s.living() {
		m.gone = true
		s.send(m.conn, encode(opRefused, 0, f))
		s.dismiss(m.conn, "the start failed")
	}
	s.alive = 0
	s.engine.Set(&s.started)
	s.settle()
}

// expire is the start deadline.
func (s *Scheduler) expire() {
	s.lock()
	defer s.unlock()
	if s.phase == phaseWaiting || s.phase == phaseStarting {
		s.abort(failure{Kind: failTimeout, Text: fmt.Sprintf("%s after %s (STEPVAN_START_TIMEOUT): start what is missing, or correct DMLC_NUM_WORKER and DMLC_NUM_SERVER",
			s.missing(), seconds(s.o.StartTimeout))})
	}
}
