package bench

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/launch"
)

// plan is the run of one process for each node, all of them inside a control group.
func (o *Options) plan(args nodeArgs, inside *controlGroup) launch.Plan {
	args.Pin = o.Cores.Pin
	command := inside.command(o.Node, o.nodeCommand(args))
	args.Bare = args.Bare || o.Nodes.peer() // peers do not use the scheduler
	size := 1
	if o.Workload == Pairs { // instances of one index in their groups form a pair
		size = o.Workers
	}
	if o.traits().alike {
		return launch.Plan{
			Peers: o.Workers + o.Servers, GroupSize: 1, Peer: command, Scheduler: inside.command(o.Node, slices.Concat(o.Node, args.list())),
			Env: slices.Concat(o.environment(), o.Env), Stderr: o.Console.Stderr, Signals: o.Console.Signals,
		}
	}
	return launch.Plan{
		Workers: o.Workers / size, Servers: o.Servers / size, GroupSize: size,
		Worker: command, Server: command, Scheduler: inside.command(o.Node, slices.Concat(o.Node, args.list())),
		Env: slices.Concat(o.environment(), o.Env), Stderr: o.Console.Stderr, Signals: o.Console.Signals,
	}
}

// heartbeatTimeout is long: a process that ends is noticed at once, and a busy machine must not end
// a measurement.
const heartbeatTimeout = time.Minute

// environment lists the settings of all processes. They inherit those of this process, too.
func (o *Options) environment() []string {
	env := []string{"STEPVAN_VAN=" + string(o.vanSetting()), "DMLC_LOCAL=0", "STEPVAN_ROUTING=broadcast", "STEPVAN_BATCH=any", "STEPVAN_PROGRESS=" + string(o.progressSetting())}
	if o.Van == Unix {
		env = append(env, "DMLC_LOCAL=1")
	}
	given, _, _ := config.FromProcess()
	if given.LogLevel == config.Default().LogLevel {
		env = append(env, "STEPVAN_LOG_LEVEL="+string(config.LogWarn))
	}
	if given.HeartbeatTimeout == config.Default().HeartbeatTimeout {
		env = append(env, "PS_HEARTBEAT_TIMEOUT="+heartbeatTimeout.String())
	}
	return env
}

// Reason says in one line why something was not measured. After the failure of a process it is the
// process's last line, without its name.
func Reason(err error) string {
	var failure *launch.Failure
	text := err.Error()
	if errors.As(err, &failure) && len(failure.Stderr) > 0 {
		text = failure.Stderr[len(failure.Stderr)-1]
		if _, after, found := strings.Cut(text, ": "); found {
			text = after
		}
	}
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
