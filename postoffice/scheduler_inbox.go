package postoffice

import (
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
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
	m.seen = time.Now()
	if m.suspect {
		m.suspect = false
		s.o.Log.Info().Msgf("%s speaks again", m.info)
	}
	if err := in.handle(m, f); err != nil {
		s.expel(m, failure{Kind: failRefused, Text: err.Error()})
	}
}

// lost implements service.
func (in *schedulerInbox) lost(c conn, err error) {
	s := in.s
	s.lock()
	defer s.unlock()
	m := s.conns[c]
	delete(s.conns, c)
	delete(s.leaving, c)
	if m != nil && m.registered() && s.phase != phaseClosed {
		left := errors.Is(err, link.ErrLeft) || errors.Is(err, stepvan.ErrClosed) && !errors.Is(err, stepvan.ErrPeerLost)
		s.depart(m, left, err.Error())
	}
	s.checkEmpty()
}

// handle does what a message asks for.
func (in *schedulerInbox) handle(m *member, f frame) error {
	s := in.s
	switch {
	case f.op == opHeartbeat:
		s.send(m.conn, frame{op: opHeartbeat, request: f.request})
	case f.op == opJoin:
		return receive(f, func(b *joinBody) error { return in.join(m, b) })
	case !m.registered():
		return malformed(f.op, "before registration")
	case f.op == opReady:
		return in.confirm(m)
	case !m.ready && f.op <= opBoard:
		return malformed(f.op, "before the start")
	case f.op == opBarrier, f.op == opWithdraw:
		return in.barrier(m, f)
	case f.op == opStop:
		return in.stop(m)
	case f.op == opPost, f.op == opRemove, f.op == opWatch, f.op == opNext, f.op == opUnwatch:
		return s.keeper.handle(m, f)
	default:
		s.o.Log.Debug().Stringer("node", m.info).Uint8("op", uint8(f.op)).Msg("unknown control message ignored")
	}
	return nil
}

// join registers m, or tells it why not and ends its session. Then the others notice nothing.
func (in *schedulerInbox) join(m *member, b *joinBody) error {
	s := in.s
	if m.registered() {
		return malformed(opJoin, "registered already")
	}
	m.want = *b
	m.info = Peer{
		Role: b.Role, Rank: b.Rank, LocalRank: b.Instance, GroupSize: b.GroupSize, Host: b.Host, PID: b.PID,
		Addresses: b.Addresses, Incarnation: m.conn.identity().Incarnation,
	}
	if err := in.vet(m); err != nil {
		if s.refusals.Allow() {
			s.o.Log.Warn().Msgf("refused %s: %v", m.info, err)
		}
		s.send(m.conn, encode(opRefused, 0, failure{Kind: failRefused, Text: err.Error()}))
		s.dismiss(m.conn, "refused")
		return nil
	}
	m.want.Shared, m.want.Addresses = nil, nil
	m.conn.member()
	s.members.alive++
	s.o.Log.Info().Msgf("%s registered, %d of %d nodes", m.info, s.members.alive, s.members.expected())
	s.send(m.conn, encode(opJoined, 0, nil))
	if s.members.alive == s.members.expected() {
		s.start()
	}
	return nil
}

// vet takes m into its registry, or says why not.
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
	return fmt.Errorf("the cluster is complete, with %v, and nodes cannot join later: restart all nodes together, or set %s", &s.o, s.o.countNames())
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
	return receive(f, func(k *barrierKey) error {
		if err := k.Group.check(m.info.Role); err != nil {
			return err
		}
		if f.op == opWithdraw {
			in.s.barriers.withdraw(m, *k, f.request)
			return nil
		}
		return in.enter(m, *k, f.request)
	})
}

func (in *schedulerInbox) enter(m *member, k barrierKey, request uint64) error {
	s := in.s
	if g := s.losses.firstOf(k.Group); g != nil {
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
