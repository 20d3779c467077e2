package postoffice

import (
	"iter"
	"time"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// SchedulerOptions describe the cluster that a scheduler expects.
type SchedulerOptions struct {
	Workers, Servers int // instances (nodes times GroupSize)
	GroupSize        int // instances per node; 0 is 1
	Pairing          stepvan.Pairing
	// Shared are the settings on which all nodes must agree, by name; a node with
	// another value is refused.
	Shared []Setting
	// StartTimeout is how long the cluster may take to become complete; 0: for ever.
	StartTimeout time.Duration
	// Every node uses HeartbeatInterval and HeartbeatTimeout. A node that is silent
	// for HeartbeatTimeout is dead. 0: off, only a broken session is death.
	HeartbeatInterval, HeartbeatTimeout time.Duration
	// WaitingEvery is the time between two lines that name missing instances; 0 is 5 s.
	WaitingEvery time.Duration
	// JoinTimeout is how long a session may be open without registering, whatever the peer says; 0 is 10 s.
	JoinTimeout time.Duration
	// Recover is deferred by the goroutines of the scheduler, to handle a panic there. nil: a panic ends the process.
	Recover func()
	Meeting string // how the nodes of a cluster find each other, for messages about those that are missing
	Host    string // where the scheduler runs, for messages
	PID     int    // for messages
	Log     zerolog.Logger
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

func (o *SchedulerOptions) complete() error {
	if o.GroupSize == 0 {
		o.GroupSize = 1
	}
	if o.WaitingEvery <= 0 {
		o.WaitingEvery = defaultWaitingEvery
	}
	if o.JoinTimeout <= 0 {
		o.JoinTimeout = defaultJoinTimeout
	}
	if o.Recover == nil {
		o.Recover = func() {}
	}
	total := 0
	for role, n := range o.sizes() {
		total += n
		if n < 0 || n > maxRank || o.GroupSize < 1 || n%o.GroupSize != 0 {
			return errs.Invalid("scheduler: %d %s instances in nodes of %d: must be nodes times DMLC_GROUP_SIZE, at most %d", n, role, o.GroupSize, maxRank)
		}
	}
	if total == 0 {
		return errs.Invalid("scheduler: no nodes to wait for: set DMLC_NUM_WORKER and DMLC_NUM_SERVER")
	}
	return checkBeat(o.HeartbeatInterval, o.HeartbeatTimeout)
}

// sizes yields the expected instances of each role, servers first.
func (o *SchedulerOptions) sizes() iter.Seq2[stepvan.Role, int] {
	return func(yield func(stepvan.Role, int) bool) {
		_ = yield(stepvan.RoleServer, o.Servers) && yield(stepvan.RoleWorker, o.Workers)
	}
}

func checkBeat(interval, timeout time.Duration) error {
	if interval < 0 || timeout < 0 || (timeout > 0 && interval == 0) || (timeout > 0 && timeout <= interval) {
		return errs.Invalid("heartbeat every %v with a timeout of %v: PS_HEARTBEAT_TIMEOUT must be greater than PS_HEARTBEAT_INTERVAL, or both 0", interval, timeout)
	}
	return nil
}
