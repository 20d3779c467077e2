package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/launch"
)

// exitGrace is how long a child that broke its connection may take to end with its own error, which
// says more.
const exitGrace = 2 * time.Second

// runProcesses runs a measurement with a process for each node.
func runProcesses(ctx context.Context, o *Options, t *turn) (*Report, error) {
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
	c := newCoordinator(o, t)
	coordinated := make(chan result, 1)
	go func() { coordinated <- coordinateProcesses(ctx, c, l, cancel) }()
	ran := launch.Run(ctx, o.plan(nodeArgs{Control: path}))
	l.Close()   // ends the coordinator when it still waits for nodes
	cancel(ran) // or for the turn
	got := <-coordinated
	return got.report, o.explainMissing(chooseError(ran, got.err))
}

// result is the report of a coordinator, or its error.
type result struct {
	report *Report
	err    error
}

// coordinateProcesses waits for the nodes and runs the coordinator. After an error it ends the run.
func coordinateProcesses(ctx context.Context, c *coordinator, l net.Listener, cancel context.CancelCauseFunc) (got result) {
	defer c.close()
	if got.err = c.accept(l); got.err == nil {
		got.report, got.err = c.run(ctx)
	}
	if errors.Is(got.err, errConnLost) {
		time.AfterFunc(exitGrace, func() { cancel(got.err) })
	} else if got.err != nil {
		cancel(got.err)
	}
	return got
}

// accept waits until all nodes have connected.
func (c *coordinator) accept(l net.Listener) error {
	for range len(c.workers) + len(c.servers) {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("%w before it was there: %w", errConnLost, err)
		}
		if err := c.registerNode(newControlConn(conn)); err != nil {
			return err
		}
	}
	return nil
}

// chooseError returns the error that says most: that of the run, unless the coordinator's error
// ended the run.
func chooseError(ran, coordinated error) error {
	var stopped *launch.Stopped
	if coordinated != nil && (ran == nil || errors.As(ran, &stopped) && errors.Is(stopped.Err, coordinated)) {
		return coordinated
	}
	return ran
}

// plan is the run of one process for each node.
func (o *Options) plan(args nodeArgs) launch.Plan {
	args.Pin = o.Pin
	command := o.nodeCommand(args)
	args.Bare = args.Bare || o.Nodes.peer() // peers do not use the scheduler
	return launch.Plan{
		Workers: o.Workers, Servers: o.Servers, GroupSize: 1,
		Worker: command, Server: command, Scheduler: slices.Concat(o.Node, args.list()),
		Env: slices.Concat(o.environment(), o.Env), Stderr: o.Stderr, Signals: o.Signals,
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
