package postoffice

import (
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/text"
)

// schedulerInbox is the service of a scheduler: it does what the messages of the instances ask for. Its handlers are
// called under the scheduler's lock; their error is the peer's mistake and ends its session.
type schedulerInbox struct{ s *Scheduler }

// opened implements service.
func (in *schedulerInbox) opened(c conn) {
	s := in.s
	s.lock()
	defer s.unlock()
	if s.phase == phaseClosed {
		s.dismiss(c, "the scheduler has stopped")
		return
	}
	now := time.Now()
	s.conns[c] = &member{conn: c, opened: now, seen: now}
}

// deliver implements service.
func (in *schedulerInbox) deliver(c conn, f frame) {
	s := in.s
	s.lock()
	defer s.unlock()
	m := s.conns[c]
	if m == nil {
		return // dismissed already
	}
	in.heard(m)
	if err := in.handle(m, f); err != nil {
		s.expel(m, failure{Kind: failRefused, Text: err.Error()})
	}
}

// handle does what a message asks for. An error is the peer's fault and costs it its session.
func (in *schedulerInbox) handle(m *member, f frame) error {
	s := in.s
	switch {
	case f.op == opHeartbeat:
		s.send(m.conn, frame{op: opHeartbeat, request: f.request})
		return nil
	case f.op == opJoin:
		return in.join(m, f)
	case m.info.Role == "":
		return malformed(f.op, "before registration")
	case f.op == opReady:
		return in.confirm(m)
	case !m.ready && f.op <= opStopped:
		return malformed(f.op, "before the start")
	}
	switch f.op {
	case opBarrier, opWithdraw:
		return in.barrier(m, f)
	case opStop:
		return in.stop(m)
	}
	s.o.Log.Debug().Stringer("node", m.info).Uint8("op", uint8(f.op)).Msg("unknown control message ignored")
	return nil
}

func (in *schedulerInbox) join(m *member, f frame) error {
	s := in.s
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
	if err := in.vet(m); err != nil {
		in.refuse(m, err)
		return nil
	}
	m.want.Shared, m.want.Addresses = nil, nil
	m.conn.member()
	s.members.alive++
	s.o.Log.Info().Msgf("%s registered, %d of %d nodes", m.info, s.members.alive, s.members.expected())
	s.send(m.conn, encode(opJoined, 0, nil))
	if s.members.complete() {
		s.start()
	}
	return nil
}

// vet registers m or says why not.
func (in *schedulerInbox) vet(m *member) error {
	s := in.s
	if s.phase != phaseWaiting {
		return in.tooLate(m)
	}
	if err := disagreement(s.o.Shared, m.want.Shared); err != nil {
		return err
	}
	if m.want.GroupSize != s.o.GroupSize {
		return fmt.Errorf("DMLC_GROUP_SIZE is %d at the node and %d at the scheduler: set the same value on every node", m.want.GroupSize, s.o.GroupSize)
	}
	return s.members.roles[m.info.Role].add(m)
}

func (in *schedulerInbox) tooLate(m *member) error {
	s := in.s
	for _, o := range s.members.roles[m.info.Role].members {
		if o.gone && o.info.Rank == m.info.Rank {
			return fmt.Errorf("%s died or left (%s), and a single node cannot come back: restart the cluster", o.info, o.reason)
		}
	}
	return fmt.Errorf("the cluster is complete, with %d workers and %d servers, and nodes cannot join later: restart all nodes together, or set DMLC_NUM_WORKER and DMLC_NUM_SERVER",
		s.o.Workers, s.o.Servers)
}

// refuse tells m, which is not registered, why, and ends its session. The others notice nothing.
func (in *schedulerInbox) refuse(m *member, err error) {
	s := in.s
	if s.refusals.Allow() {
		s.o.Log.Warn().Msgf("refused %s: %v", m.info, err)
	}
	s.send(m.conn, encode(opRefused, 0, failure{Kind: failRefused, Text: err.Error()}))
	s.dismiss(m.conn, "refused")
}

// confirm notes that m knows its peers.
func (in *schedulerInbox) confirm(m *member) error {
	s := in.s
	if s.epoch == 0 || m.ready {
		return malformed(opReady, "not expected")
	}
	m.ready = true
	s.members.roles[m.info.Role].ready++
	s.continueStart()
	return nil
}

// stop notes that m has stopped working.
func (in *schedulerInbox) stop(m *member) error {
	s := in.s
	if m.stopping {
		return malformed(opStop, "not expected")
	}
	m.stopping = true
	s.members.stopping++
	if s.members.stopping == 1 {
		s.reminders.stop = backoff{since: time.Now(), step: s.o.WaitingEvery / 5}
	}
	s.checkStop()
	return nil
}

// barrier serves opBarrier and opWithdraw.
func (in *schedulerInbox) barrier(m *member, f frame) error {
	s := in.s
	var b barrierBody
	if err := decode(f, &b); err != nil {
		return err
	}
	k := barrierKey{b.Group, b.Instances}
	if err := k.group.check(m.info.Role); err != nil {
		return err
	}
	if f.op == opWithdraw {
		s.barriers.withdraw(m, k, f.request)
		return nil
	}
	return in.enter(m, k, f.request)
}

func (in *schedulerInbox) enter(m *member, k barrierKey, request uint64) error {
	s := in.s
	if g := s.losses.firstOf(k.group); g != nil {
		s.send(m.conn, encode(opBroken, request, lossOf(g)))
		return nil
	}
	released, ok := s.barriers.enter(m, k, request, s.o.WaitingEvery/5)
	if !ok {
		return malformed(opBarrier, "in the round already")
	}
	for _, a := range released {
		s.send(a.m.conn, frame{op: opReleased, request: a.request})
	}
	return nil
}

// lost implements service.
func (in *schedulerInbox) lost(c conn, err error) {
	s := in.s
	s.lock()
	defer s.unlock()
	m := s.conns[c]
	delete(s.conns, c)
	delete(s.leaving, c)
	if m != nil && m.info.Role != "" && s.phase != phaseClosed {
		left := errors.Is(err, link.ErrLeft) || errors.Is(err, stepvan.ErrClosed) && !errors.Is(err, stepvan.ErrPeerLost)
		s.depart(m, left, text.Line(err.Error(), maxReason))
	}
	s.checkEmpty()
}

// heard notes a sign of life.
func (in *schedulerInbox) heard(m *member) {
	s := in.s
	m.seen = time.Now()
	if m.suspect {
		m.suspect = false
		s.o.Log.Info().Msgf("%s speaks again", m.info)
	}
}
