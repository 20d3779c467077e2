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
	phaseWaiting  phase = iota // for nodes to register
	phaseStarting              // views are being confirmed
	phaseRunning
	phaseStopped // everybody alive has stopped, and leaves
	phaseFailed  // the start failed
	phaseClosed  // Stop has returned
)

// Scheduler is the rendezvous of a cluster: it registers nodes, gives ranks,
// holds barriers, and says who left or died. All methods may be called from any goroutine.
type Scheduler struct {
	deferred // guards what follows
	o        SchedulerOptions
	engine   *progress.Engine
	caller   *caller
	self     *member // the scheduler as a member of barriers

	number func(epoch uint64)

	phase    phase
	begun    time.Time
	epoch    uint64
	roles    [roleEnd]*registry
	conns    map[conn]*member // open sessions, registered or not
	leaving  map[conn]time.Time
	alive    int // registered and not gone
	stopping int // of those, in Stop
	barriers *barriers
	firsts   map[Role]*member // first to go of each role
	news     []goneNode       // gone, and not told yet
	notes    notes
	strange  *sparing.Lines // of the log, about peers that are not registered
	ticked   time.Time      // last turn of the timer

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
	id := s.self.info
	node.SetIdentity(link.Identity{ID: id.ID, Incarnation: id.Incarnation, Name: id.Name()})
	node.Handle(link.ChannelControl, newControl(s, true, o.Log))
	go s.run()
	return s, nil
}

func newScheduler(engine *progress.Engine, o SchedulerOptions) *Scheduler {
	s := &Scheduler{
		o: o, engine: engine, number: func(uint64) {}, caller: newCaller(engine), begun: time.Now(), ticked: time.Now(),
		conns: map[conn]*member{}, leaving: map[conn]time.Time{}, firsts: map[Role]*member{},
		quit: make(chan struct{}), done: make(chan struct{}), stop: newStopper(),
	}
	for role, size := range o.sizes() {
		s.roles[role] = newRegistry(role, size, o.GroupSize)
	}
	s.barriers = newBarriers(s.quorum)
	s.strange = sparing.New(strangeLines, strangePeriod, func(left int) {
		o.Log.Warn().Msgf("%d more peers were refused within %s", left, seconds(strangePeriod))
	})
	s.notes.next = s.begun.Add(o.WaitingEvery)
	s.self = &member{info: Peer{
		ID: SchedulerID, Role: RoleScheduler, Incarnation: newIncarnation(), Host: o.Host, PID: o.PID, GroupSize: o.GroupSize,
	}}
	s.self.conn = &local{calls: s.caller}
	return s
}

// Start waits until every node has registered and knows its peers, the start
// deadline passes, or ctx ends. The deadline's error names who is missing and is
// told to all nodes; the end of ctx changes nothing for them.
func (s *Scheduler) Start(ctx context.Context) error {
	if err := s.engine.Wait(ctx, &s.started); err != nil {
		s.lock()
		defer s.unlock()
		return &stepvan.OpError{Op: "start", Err: fmt.Errorf("waited %s for %s: %w", seconds(time.Since(s.begun)), s.missing(), err)}
	}
	s.lock()
	defer s.unlock()
	return s.err
}

// Barrier takes part in a round as the scheduler: group must include
// GroupScheduler. Errors are those of Office.Barrier.
func (s *Scheduler) Barrier(ctx context.Context, group Group, instances bool) error {
	if err := group.check(RoleScheduler); err != nil {
		return err
	}
	err := s.caller.pass(ctx, barrierKey{group, instances}, func(f frame) {
		s.lock()
		defer s.unlock()
		if err := s.round(s.self, f); err != nil {
			s.caller.resolve(f.request, err)
		}
	})
	return barrierError(err, group)
}

// Admit vets a peer that dials the scheduler's node (link.Options.Admit). It lets
// everybody register until the scheduler has stopped.
func (s *Scheduler) Admit(link.Identity) error {
	s.lock()
	defer s.unlock()
	if s.phase == phaseClosed {
		return errs.Invalid("the scheduler has stopped")
	}
	return nil
}

// Nodes lists the registered nodes that live; ranks are final once Start has returned nil.
func (s *Scheduler) Nodes() []Peer {
	s.lock()
	defer s.unlock()
	var out []Peer
	for _, m := range s.living() {
		out = append(out, m.info)
	}
	return out
}

// Epoch is the number of the view: 0 before the start.
func (s *Scheduler) Epoch() uint64 {
	s.lock()
	defer s.unlock()
	return s.epoch
}

func (s *Scheduler) setEpoch(e uint64) {
	s.epoch = e
	s.number(e)
}

// living lists the members that are not gone, by role and then arrival.
func (s *Scheduler) living() []*member {
	out := make([]*member, 0, s.alive)
	for _, r := range s.roles {
		if r == nil {
			continue
		}
		for _, m := range r.members {
			if !m.gone {
				out = append(out, m)
			}
		}
	}
	return out
}

// broadcast sends f to everybody alive.
func (s *Scheduler) broadcast(f frame) {
	for _, m := range s.living() {
		s.send(m.conn, f)
	}
}
