package postoffice

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/wire"
)

// OfficeOptions say who a node wants to be.
type OfficeOptions struct {
	Role      stepvan.Role
	Rank      stepvan.Rank // AnyRank: in order of arrival
	Instance  LocalRank    // AnyLocalRank: follows from the rank
	GroupSize int          // instances per node; 0 is 1
	Shared    []Setting    // must be the same on every node
	// HeartbeatInterval and HeartbeatTimeout: how often to show life, and the
	// silence after which the scheduler is lost. 0: off.
	HeartbeatInterval, HeartbeatTimeout time.Duration
	WaitingEvery                        time.Duration // between lines while the scheduler cannot be reached; 0 is 5 s

	// OnDead hears of every node of the cluster that died, the scheduler included,
	// and OnLeft of those that left although others did not stop. They are called one
	// at a time and must not block. nil is allowed.
	OnDead func(Peer, error)
	OnLeft func(Peer)

	Meeting string // how the nodes of a cluster find each other, for messages about a scheduler that does not answer
	// Recover is deferred by the goroutine of the office, to handle a panic there. nil: panics go on.
	Recover func()

	Host string // where this node runs, for messages
	PID  int    // for messages
	Log  zerolog.Logger
}

// officePhase of an office's life.
type officePhase uint8

const (
	officeIdle    officePhase = iota
	officeJoining             // Join waits
	officeJoined
	officeOver // stopped, or the scheduler is lost
)

// Office is a node's seat in the cluster. All methods may be called from any goroutine.
type Office struct {
	deferred // guards what follows
	o        OfficeOptions
	engine   *progress.Engine
	caller   *caller
	identify func(link.Identity)
	number   func(epoch uint64)
	dial     func(context.Context, []string) (conn, error)

	phase       officePhase
	incarnation uint32
	where       string // the scheduler's addresses, for messages
	scheduler   conn
	heard       time.Time // the scheduler's last sign of life
	beaten      time.Time // own last sign of life
	ticked      time.Time // last turn of the timer
	tries       int       // to register
	out         bool      // the scheduler has put this node out: it is to try again
	registered  bool      // the scheduler has said so
	waiting     string    // what the scheduler said last about whom it waits for

	self     Peer
	epoch    uint64
	announce int // peers that the list will have
	peers    []Peer
	states   map[wire.PeerID]*standing

	cause    error // why the office is over, nil after Stop
	stopping bool
	joined   progress.Event
	stopped  progress.Event
	stop     stopper
	done     chan struct{}
	calls    sync.Mutex // around callbacks
}

// NewOffice makes the office of node, before the node's first Listen or Dial: it
// takes link.ChannelControl and the node's identity.
func NewOffice(node *link.Transport, o OfficeOptions) (*Office, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	f := newOffice(node.Engine(), o)
	h := newControl(f, false, o.Log)
	f.identify, f.number = node.SetIdentity, node.SetEpoch
	f.dial = func(ctx context.Context, addrs []string) (conn, error) { return h.dial(ctx, node, addrs) }
	node.SetIdentity(link.Identity{Incarnation: f.incarnation, Name: f.self.Name()})
	node.Handle(link.ChannelControl, h)
	return f, nil
}

func newOffice(e *progress.Engine, o OfficeOptions) *Office {
	f := &Office{
		o: o, engine: e, caller: newCaller(e), incarnation: newIncarnation(),
		states: map[wire.PeerID]*standing{}, stop: newStopper(), done: make(chan struct{}),
	}
	f.self = Peer{
		Role: o.Role, Rank: o.Rank, NodeRank: -1, LocalRank: o.Instance, GroupSize: o.GroupSize,
		Incarnation: f.incarnation, Host: o.Host, PID: o.PID,
	}
	return f
}

func (o *OfficeOptions) complete() error {
	if o.GroupSize == 0 {
		o.GroupSize = 1
	}
	if o.WaitingEvery <= 0 {
		o.WaitingEvery = defaultWaitingEvery
	}
	if o.Recover == nil {
		o.Recover = func() {}
	}
	if o.GroupSize < 1 || checkRole(o.Role) != nil {
		return errs.Invalid("office: a %s in a group of %d: set DMLC_ROLE to worker or server, and DMLC_GROUP_SIZE to at least 1", o.Role, o.GroupSize)
	}
	return checkBeat(o.HeartbeatInterval, o.HeartbeatTimeout)
}

// Barrier waits until every member of group has called it: every instance, or with
// instances == false one of every node, the same one each time. It waits as long as the members live,
// or until ctx ends; then the next Barrier over the same group continues this one.
//
// Errors: stepvan.ErrInvalid at once for a group without workers, servers or peers,
// one that this node is not in, and a second caller of the same barrier in this
// node; stepvan.ErrPeerLost naming the member that died or left, or the scheduler;
// ctx's error; stepvan.ErrClosed after Stop.
func (f *Office) Barrier(ctx context.Context, group Group, instances bool) error {
	if err := group.check(f.o.Role); err != nil {
		return err
	}
	f.lock()
	ready := f.phase >= officeJoined
	f.unlock()
	if !ready {
		return errs.Invalid("barrier over %s: join the cluster first", group)
	}
	err := f.caller.pass(ctx, barrierKey{group, instances}, func(fr frame) {
		f.lock()
		defer f.unlock()
		if f.scheduler != nil {
			f.send(f.scheduler, fr)
		}
	})
	return barrierError(err, group)
}

// Self is this node; rank, place and ID are final once Join has returned nil.
func (f *Office) Self() Peer {
	f.lock()
	defer f.unlock()
	return f.self
}

// Epoch is the number of the newest view that this node has heard of: 0 before the start.
func (f *Office) Epoch() uint64 {
	f.lock()
	defer f.unlock()
	return f.epoch
}

// Peers lists the nodes that this one talks to, by rank: a worker's servers, a
// server's workers. It is that of the start, and must not be changed.
func (f *Office) Peers() []Peer {
	f.lock()
	defer f.unlock()
	return f.peers
}

// Done is closed when the office is over: after Stop, or when the scheduler is lost.
func (f *Office) Done() <-chan struct{} { return f.done }

// Err says why the office is over: nil before that and after Stop.
func (f *Office) Err() error {
	f.lock()
	defer f.unlock()
	return f.cause
}

// schedulerName is the scheduler for messages.
func (f *Office) schedulerName() string {
	if f.where == "" {
		return "scheduler"
	}
	return fmt.Sprintf("scheduler (%s)", f.where)
}
