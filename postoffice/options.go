package postoffice

import (
	"fmt"
	"iter"
	"time"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// Options are what the scheduler and the offices of a cluster have in common.
type Options struct {
	GroupSize int       // instances per node; 0 is 1
	Shared    []Setting // all nodes must agree on them: a node with another value is refused
	// HeartbeatInterval is how often an instance shows that it lives. An instance or a scheduler that is silent for
	// HeartbeatTimeout is dead. 0: off, only a broken session is death.
	HeartbeatInterval, HeartbeatTimeout time.Duration
	// WaitingEvery is the time between two lines about what a start waits for; 0 is 5 s.
	WaitingEvery time.Duration
	// Recover is deferred by the goroutines of the postoffice, to handle a panic there. nil: a panic ends the process.
	Recover func()
	Meeting string // how the nodes of a cluster find each other, for messages about those that are missing
	Host    string // where this node runs, for messages
	PID     int    // for messages
	Log     zerolog.Logger
}

// SchedulerOptions describe the cluster that a scheduler expects.
type SchedulerOptions struct {
	Options
	Workers, Servers, Peers int // instances (nodes times GroupSize)
	Pairing                 stepvan.Pairing
	// StartTimeout is how long the cluster may take to become complete; 0: for ever.
	StartTimeout time.Duration
	// JoinTimeout is how long a session may be open without registering, whatever the peer says; 0 is 10 s.
	JoinTimeout time.Duration
}

// OfficeOptions say what an instance wants to be.
type OfficeOptions struct {
	Options
	Role     stepvan.Role
	Rank     stepvan.Rank // AnyRank: in order of arrival
	Instance LocalRank    // AnyLocalRank: follows from the rank
	// OnDead is called for every instance of the cluster that died, the scheduler included. Calls come one at a time,
	// and must not block. nil is allowed.
	OnDead func(Peer, error)
	// OnLeft is called as OnDead is, for every instance of the cluster that has left. The scheduler is not among them.
	// The error wraps [link.ErrLeft].
	OnLeft func(Peer, error)
}

const (
	defaultWaitingEvery = 5 * time.Second
	defaultJoinTimeout  = 10 * time.Second
	// refusalLines is how many lines of the log tell within refusalPeriod of peers that were refused.
	refusalLines  = 10
	refusalPeriod = 10 * time.Second
	// farewell is how long a goodbye may take to arrive.
	farewell = time.Second
	// gather is how long the news of a loss waits for further ones, to tell them together.
	gather = 5 * time.Millisecond
)

func (o *Options) complete() error {
	if o.GroupSize == 0 {
		o.GroupSize = 1
	}
	if o.WaitingEvery <= 0 {
		o.WaitingEvery = defaultWaitingEvery
	}
	if o.Recover == nil {
		o.Recover = func() {}
	}
	interval, timeout := o.HeartbeatInterval, o.HeartbeatTimeout
	if interval < 0 || timeout < 0 || timeout > 0 && (interval == 0 || timeout <= interval) {
		return errs.Invalid("start: heartbeat: the timeout must be longer than the interval, or both 0 (got %v and %v): set PS_HEARTBEAT_TIMEOUT and PS_HEARTBEAT_INTERVAL", timeout, interval)
	}
	return nil
}

func (o *SchedulerOptions) complete() error {
	if err := o.Options.complete(); err != nil {
		return err
	}
	if o.JoinTimeout <= 0 {
		o.JoinTimeout = defaultJoinTimeout
	}
	for role, n := range o.sizes() {
		if n < 0 || n > maxRank || o.GroupSize < 1 || n%o.GroupSize != 0 {
			return errs.Invalid("start: number of %ss: wrong (got %d, want a multiple of DMLC_GROUP_SIZE, %d, up to %d): set the number of nodes", role, n, o.GroupSize, maxRank)
		}
	}
	if o.Workers+o.Servers+o.Peers == 0 {
		return errs.Invalid("start: scheduler: there are no nodes to wait for: set DMLC_NUM_WORKER and DMLC_NUM_SERVER, or STEPVAN_NUM_PEER")
	}
	return nil
}

// sizes yields the expected instances of each role, servers first.
func (o *SchedulerOptions) sizes() iter.Seq2[stepvan.Role, int] {
	return func(yield func(stepvan.Role, int) bool) {
		_ = yield(stepvan.RoleServer, o.Servers) && yield(stepvan.RoleWorker, o.Workers) && yield(stepvan.RolePeer, o.Peers)
	}
}

// String reads "2 workers and 1 server", and in a cluster with peers "2 workers, 1 server and 4 peers" or "4 peers".
func (o *SchedulerOptions) String() string {
	var parts []string
	if o.Workers+o.Servers > 0 {
		parts = append(parts, count(o.Workers, stepvan.RoleWorker), count(o.Servers, stepvan.RoleServer))
	}
	if o.Peers > 0 {
		parts = append(parts, count(o.Peers, stepvan.RolePeer))
	}
	return conjunction(parts)
}

// count reads "1 worker" and "2 workers".
func count(n int, role stepvan.Role) string {
	if n == 1 {
		return "1 " + string(role)
	}
	return fmt.Sprintf("%d %ss", n, role)
}

// countNames names the settings with the sizes of the cluster: those of peers only where there are some.
func (o *SchedulerOptions) countNames() string {
	switch {
	case o.Peers == 0:
		return "DMLC_NUM_WORKER and DMLC_NUM_SERVER"
	case o.Workers+o.Servers == 0:
		return "STEPVAN_NUM_PEER"
	}
	return "DMLC_NUM_WORKER, DMLC_NUM_SERVER and STEPVAN_NUM_PEER"
}

func (o *OfficeOptions) complete() error {
	if err := o.Options.complete(); err != nil {
		return err
	}
	if o.GroupSize < 1 || checkRole(o.Role) != nil {
		return errs.Invalid("start: instance: wrong role or group size (got %s and %d, want worker, server or peer, and at least 1): set DMLC_ROLE and DMLC_GROUP_SIZE", o.Role, o.GroupSize)
	}
	return nil
}
