package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/launch"
)

// lastWords is how long a child that broke its line has to end with an error of its own,
// which says more.
const lastWords = 2 * time.Second

// runProcesses runs a measurement with a process for each node.
func runProcesses(ctx context.Context, o *Options, s *seat) (*Report, error) {
	folder, err := os.MkdirTemp("", "stepvan-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "control")
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := newConductor(o, s)
	conducted := make(chan result, 1)
	go func() { conducted <- conductAll(ctx, c, l, cancel) }()
	ran := launch.Run(ctx, o.plan(nodeArgs{Control: path}))
	l.Close()   // ends the conductor if it still waits for nodes
	cancel(ran) // or for its turn
	got := <-conducted
	return got.report, o.explain(reason(ran, got.err))
}

// result of a conductor.
type result struct {
	report *Report
	err    error
}

// conductAll waits for the nodes and conducts. When it fails it ends the run.
func conductAll(ctx context.Context, c *conductor, l net.Listener, cancel context.CancelCauseFunc) (got result) {
	defer c.close()
	if got.err = c.accept(l); got.err == nil {
		got.report, got.err = c.conduct(ctx)
	}
	if errors.Is(got.err, errLineLost) {
		time.AfterFunc(lastWords, func() { cancel(got.err) })
	} else if got.err != nil {
		cancel(got.err)
	}
	return got
}

// accept waits until all nodes have connected.
func (c *conductor) accept(l net.Listener) error {
	for range len(c.workers) + len(c.servers) {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("%w before it was there: %w", errLineLost, err)
		}
		if err := c.introduce(newLine(conn)); err != nil {
			return err
		}
	}
	return nil
}

// reason chooses the error that tells most: that of the run, unless it was ended because of the conductor's.
func reason(ran, conducted error) error {
	var stopped *launch.Stopped
	if conducted != nil && (ran == nil || errors.As(ran, &stopped) && errors.Is(stopped.Err, conducted)) {
		return conducted
	}
	return ran
}

// plan is the run of one process for each node.
func (o *Options) plan(args nodeArgs) launch.Plan {
	args.Pin = o.Pin
	command := o.nodeCommand(args)
	args.Bare = args.Bare || o.Nodes.peer() // nobody asks the scheduler anything
	return launch.Plan{
		Workers: o.Workers, Servers: o.Servers, GroupSize: 1,
		Worker: command, Server: command, Scheduler: slices.Concat(o.Node, args.list()),
		Env: slices.Concat(o.settings(), o.Env), Stderr: o.Stderr, Signals: o.Signals,
	}
}

// patience with silent nodes: a process that ends is noticed at once, and a machine that is
// kept busy is no reason to end a measurement.
const patience = time.Minute

// settings of all processes. Those of this process's environment reach them, too.
func (o *Options) settings() []string {
	env := []string{"STEPVAN_VAN=" + string(o.setting()), "DMLC_LOCAL=0", "STEPVAN_ROUTING=broadcast", "STEPVAN_BATCH=any", "STEPVAN_PROGRESS=" + string(o.waiting())}
	if o.Van == Unix {
		env = append(env, "DMLC_LOCAL=1")
	}
	given, _, _ := config.FromProcess()
	if given.LogLevel == config.Default().LogLevel {
		env = append(env, "STEPVAN_LOG_LEVEL="+string(config.LogWarn))
	}
	if given.HeartbeatTimeout == config.Default().HeartbeatTimeout {
		env = append(env, "PS_HEARTBEAT_TIMEOUT="+patience.String())
	}
	return env
}
