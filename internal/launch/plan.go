package launch

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/stepvan/stepvan/config"
)

// Plan says what Run is to run. Run reads it only, and keeps nothing of it.
type Plan struct {
	Workers, Servers int // nodes
	GroupSize        int // instances per node, each a process; 0: DMLC_GROUP_SIZE of the environment, else 1

	Worker, Server []string // program and arguments of each worker and each server
	Scheduler      []string // nil: the sub-command `scheduler` of Self
	Self           Program  // runs stepvan; nil: this program
	Dir            string   // where the children start; "": here

	// Guard is the command that runs the function Guard: the sub-command GuardCommand of stepvan. It ends what the
	// children have started when this process is killed. Nil: what they have started may survive that.
	Guard []string

	// Env holds NAME=value entries that come on top of this process's environment.
	// Settings among them, and those of the environment, reach the children, save
	// those that Run gives to each child itself (role, rank, address, sizes).
	Env []string

	Stdout, Stderr io.Writer // nil: nowhere. Run writes whole lines, one Write at a time over both
	Prefix         bool      // begin each line with the child's name: `worker 0 | `, and say on Stderr what Run does; logs are text
	Color          bool      // colour the prefix

	// Opening, if set, makes a line that is printed to Stderr before anybody is started, when Prefix is set.
	// It gets the settings of the scheduler.
	Opening func(config.Settings) string

	Grace time.Duration // from SIGTERM to SIGKILL; 0: 5 s

	// Signals stop the run: the first gently, the second at once. Nil: none.
	// The function Signals makes such a channel.
	Signals <-chan os.Signal

	// Started, if set, is called with each child once it runs, by Run's goroutine.
	Started func(Child)

	// Result, if set, gives each child the write end of a pipe as descriptor 3
	// (see ResultFile) and, if no child has failed, is called with what each child
	// wrote there, in the order scheduler, servers, workers, by Run's goroutine.
	// A child may write up to MaxResult bytes. The bytes belong to the callee.
	Result func(Child, []byte)
}

// defaultGrace is Plan.Grace when that is 0.
const defaultGrace = 5 * time.Second

// Child is a process of a run.
type Child struct {
	Role   config.Role // scheduler, server or worker
	Rank   int         // of the instance within its role: Node * group size + Device
	Node   int         // DMLC_NODE_RANK
	Device int         // STEPMESH_GPU, the instance within the node
	PID    int         // 0 until it runs
}

// String is the child's name: "worker 3", "scheduler".
func (c Child) String() string {
	if c.Role == config.RoleScheduler {
		return string(c.Role)
	}
	return fmt.Sprintf("%s %d", c.Role, c.Rank)
}

// children lists everybody in the order of their start: those who wait for
// connections come first.
func children(s config.Settings) []Child {
	out := []Child{{Role: config.RoleScheduler}}
	for rank := range s.NumServerInstances() {
		out = append(out, instance(config.RoleServer, rank, s.GroupSize))
	}
	for rank := range s.NumWorkerInstances() {
		out = append(out, instance(config.RoleWorker, rank, s.GroupSize))
	}
	return out
}

func instance(role config.Role, rank, groupSize int) Child {
	return Child{Role: role, Rank: rank, Node: rank / groupSize, Device: rank % groupSize}
}

// command is what the child runs.
func (p *Plan) command(role config.Role) []string {
	switch role {
	case config.RoleWorker:
		return p.Worker
	case config.RoleServer:
		return p.Server
	}
	return p.Scheduler
}
