package postoffice

import (
	"context"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/sparing"
)

// phase of the cluster's life.
type phase uint8

const (
	phaseWaiting  phase = iota // for instances to register
	phaseStarting              // views are being confirmed
	phaseRunning
	phaseStopped // all living instances have stopped, and leave
	phaseFailed  // the start failed
	phaseClosed  // Stop has returned
)

// Scheduler is where the instances of a cluster find each other: it registers them, gives ranks,
// holds barriers, and tells which instances left or died. All methods may be called from any goroutine.
type Scheduler struct {
	deferred // guards what follows

	o      SchedulerOptions
	engine *progress.Engine
	calls  *barrierCalls
	number func(epoch uint64)

	phase     phase
	begun     time.Time
	epoch     uint64
	members   membership
	conns     map[conn]*member // open sessions, registered or not
	leaving   map[conn]time.Time
	barriers  *barriers
	keeper    *keeper
	losses    losses
	reminders reminders
	refusals  *sparing.Lines // of the log, about peers that are not registered
	attention attention

	err     error // of the start
	started progress.Event
	empty   progress.Event
	stop    stopper
	quit    chan struct{}
	done    chan struct{}
}

// NewScheduler makes the scheduler of a cluster on node, before the node's first
// Listen: it takes link.ChannelControl and sets the node's identity. Registration is open as soon
// as the node listens; the start deadline runs from here.
func NewScheduler(node *link.Transport, o SchedulerOptions) (*Scheduler, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := newScheduler(node.Engine(), o)
	s.number = node.SetEpoch
	s.attention.looks, s.attention.lookNow = s.engine.Looks.Count, s.engine.WakeAll
	id := s.members.self.info
	node.SetIdentity(link.Identity{ID: id.ID, Incarnation: id.Incarnation, Name: id.Name()})
	node.Handle(link.ChannelControl, newControl(&schedulerInbox{s}, true, o.Log))
	go s.run()
	return s, nil
}

func newScheduler(engine *progress.Engine, o SchedulerOptions) *Scheduler {
	s := &Scheduler{
		o: o, engine: engine, number: func(uint64) {}, calls: newBarrierCalls(engine), begun: time.Now(), attention: attention{ticked: time.Now()},
		conns: map[conn]*member{}, leaving: map[conn]time.Time{},
		quit: make(chan struct{}), done: make(chan struct{}), stop: stopper{ended: make(chan struct{})},
	}
	s.members = newMembership(&s.o)
	s.keeper = newKeeper(s)
	s.members.self.conn = &ownConn{calls: s.calls, board: s.keeper.own}
	s.barriers = newBarriers(s.members.quorum)
	s.losses = losses{s: s}
	s.reminders = reminders{s: s, next: s.begun.Add(o.WaitingEvery)}
	s.refusals = sparing.New(refusalLines, refusalPeriod, func(left int) {
		o.Log.Warn().Msgf("%d more peers were refused within %s", left, seconds(refusalPeriod))
	})
	return s
}

// Start waits until every instance has registered and knows its peers, the start deadline passes, or ctx ends. The
// error of the deadline names the instances that are missing, and all get it. The end of ctx changes nothing for them.
func (s *Scheduler) Start(ctx context.Context) error {
	err := s.engine.Wait(ctx, &s.started)
	s.lock()
	defer s.unlock()
	if err != nil {
		return &stepvan.OpError{Op: "start", Err: fmt.Errorf("waited %s for %s: %w", seconds(time.Since(s.begun)), s.missing(), err)}
	}
	return s.err
}

// Barrier takes part in a round as the scheduler: group must include
// GroupScheduler. It returns the same errors as Office.Barrier.
func (s *Scheduler) Barrier(ctx context.Context, group Group, instances bool) error {
	return s.calls.wait(ctx, stepvan.RoleScheduler, barrierKey{group, instances}, func(f frame) {
		s.lock()
		defer s.unlock()
		if err := (&schedulerInbox{s}).barrier(s.members.self, f); err != nil {
			s.calls.resolve(f.request, err)
		}
	})
}

// Board is the board of the cluster, on which the scheduler may post, too.
func (s *Scheduler) Board() *Board { return s.keeper.own }

// Admit vets a peer that dials the scheduler (link.Options.Admit). Any peer may register until the scheduler has
// stopped.
func (s *Scheduler) Admit(link.Identity) error {
	s.lock()
	defer s.unlock()
	if s.phase == phaseClosed {
		return errs.Invalid("the scheduler has stopped")
	}
	return nil
}

// Peers lists the registered instances that live. Ranks are final once Start has returned nil.
func (s *Scheduler) Peers() []Peer {
	s.lock()
	defer s.unlock()
	var out []Peer
	for _, m := range s.members.living() {
		out = append(out, m.info)
	}
	return out
}

func (s *Scheduler) setEpoch(e uint64) {
	s.epoch = e
	s.number(e)
}

// missing names the instances without which the cluster is not complete.
func (s *Scheduler) missing() string {
	if s.phase != phaseWaiting {
		return s.members.unconfirmed()
	}
	return s.members.unregistered()
}

// broadcast sends f to all members that live.
func (s *Scheduler) broadcast(f frame) {
	for _, m := range s.members.living() {
		s.send(m.conn, f)
	}
}
