package launch

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
)

// Plan says what Run starts. Run only reads it, and keeps nothing of it.
type Plan struct {
	Workers, Servers, Peers int // nodes

	GroupSize int // instances per node, each a process; 0: DMLC_GROUP_SIZE of the environment, else 1

	Worker, Server, Peer []string // program and arguments of each instance of the role

	Scheduler []string // nil: the sub-command `scheduler` of Self
	Self      Program  // runs stepvan; nil: this program
	Dir       string   // where the children start; "": here

	// Guard is the command that runs the function Guard: the sub-command GuardCommand of stepvan. When this process
	// is killed, the guard kills what the children have started. Nil: those processes may survive.
	Guard []string

	// Env holds NAME=value entries that come on top of this process's environment.
	// Settings in both reach the children, except
	// those that Run gives to each child itself (role, rank, address, sizes).
	Env []string

	Stdout, Stderr io.Writer // nil: nowhere. Run writes whole lines, one Write at a time over both
	Prefix         bool      // begin each line with the child's name, `worker 0 | `, and print what Run does on Stderr; logs are text
	Color          bool      // colour the prefix

	// Opening, if set, makes a line for Stderr that Run prints before it starts a child, when Prefix is set.
	// It gets the settings of the scheduler.
	Opening func(config.Settings) string

	Grace time.Duration // from SIGTERM to SIGKILL; 0: 5 s

	// Signals stop the run: the first gently, the second at once. Nil: none.
	// The function Signals makes such a channel.
	Signals <-chan os.Signal

	// Run's goroutine calls Started, if it is set, with each child that runs.
	Started func(Child)

	// Result, if set, gives each child the write end of a pipe as descriptor 3 (see
	// ResultFile). When no child has failed, Run's goroutine calls Result with the
	// bytes of each child, in the order scheduler, servers, peers, workers.
	// A child may write up to MaxResult bytes. The bytes belong to the callee.
	Result func(Child, []byte)
}

// defaultGrace is Plan.Grace when that is 0.
const defaultGrace = 5 * time.Second

// Child is a process of a run.
type Child struct {
	Role   stepvan.Role // scheduler, server, peer or worker
	Rank   int          // of the instance within its role: Node * group size + Device
	Node   int          // DMLC_NODE_RANK
	Device int          // STEPMESH_GPU, the instance within the node
	PID    int          // 0 until it runs
}

// String is the child's name: "worker 3", "scheduler".
func (c Child) String() string {
	if c.Role == stepvan.RoleScheduler {
		return string(c.Role)
	}
	return fmt.Sprintf("%s %d", c.Role, c.Rank)
}

// children lists all children in the order of their start. Those that accept connections come
// first.
func children(s config.Settings) []Child {
	out := []Child{{Role: stepvan.RoleScheduler}}
	for rank := range s.NumServerInstances() {
		out = append(out, instance(stepvan.RoleServer, rank, s.GroupSize))
	}
	for rank := range s.NumPeerInstances() {
		out = append(out, instance(stepvan.RolePeer, rank, s.GroupSize))
	}
	for rank := range s.NumWorkerInstances() {
		out = append(out, instance(stepvan.RoleWorker, rank, s.GroupSize))
	}
	return out
}

func instance(role stepvan.Role, rank, groupSize int) Child {
	return Child{Role: role, Rank: rank, Node: rank / groupSize, Device: rank % groupSize}
}

// command is the command line of a role.
func (p *Plan) command(role stepvan.Role) []string {
	switch role {
	case stepvan.RoleWorker:
		return p.Worker
	case stepvan.RoleServer:
		return p.Server
	case stepvan.RolePeer:
		return p.Peer
	}
	return p.Scheduler
}
