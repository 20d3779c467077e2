package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/cmd/stepvan/internal/terminal"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/launch"
	"github.com/stepvan/stepvan/internal/reach"
)

// launchFlags are the flags of `stepvan launch`.
type launchFlags struct {
	self      launch.Program
	size      launch.Size
	groupSize int
	van       string
	server    string
	peer      string
	scheduler string
	timeout   time.Duration
	grace     time.Duration
	noPrefix  bool
}

func newLaunch(self launch.Program) *cobra.Command {
	f := launchFlags{self: self, size: launch.Size{Workers: 1, Servers: 1}}
	c := &cobra.Command{
		Use:   "launch -n SIZE [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a scheduler, workers, servers and peers on this machine",
		Long: `launch starts a scheduler and COMMAND as each worker, server and peer. Each process
reads its role from its environment: DMLC_ROLE, DMLC_NODE_RANK, DMLC_PS_ROOT_URI,
DMLC_PS_ROOT_PORT (a free one) and the others. The processes inherit the settings of
this environment.

launch prints the output of the processes line by line, after the name of the process.
The first process that fails ends the run. launch prints its name and last lines, and
stops the others with SIGTERM, and after --grace with SIGKILL. Ctrl-C does the same; a
second Ctrl-C kills at once. No process is left behind, not even those that the
commands have started.

launch exits with the code of the first process that failed. After a signal the code
is 128 plus its number, and after --timeout it is 124. The code is 126 when COMMAND
cannot run, and 127 when it does not exist.`,
		Example: `    stepvan launch -n 2w2s -- ./node                    two workers, two servers
    stepvan launch -n 8w4s --van tcp -- ./node          ... over TCP
    stepvan launch -n 4p -- ./node                      four peers
    stepvan launch --server-command './server -v' -n 4w1s -- ./worker
    stepvan launch -n 1w1s --group-size 8 -- ./node     nodes of 8 instances each
    STEPVAN_LOG_LEVEL=debug stepvan launch -n 1w1s -- sh -c 'echo I am $DMLC_ROLE'`,
		GroupID: groupRun,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no command given: write it after --, like stepvan launch -n 2w2s -- ./node")
			}
			return f.check(c.Flags().Changed)
		},
		RunE: func(c *cobra.Command, args []string) error {
			return f.run(c.Context(), args, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f.define(c)
	return c
}

func (f *launchFlags) define(c *cobra.Command) {
	flags := c.Flags()
	flags.SetInterspersed(false) // flags after COMMAND belong to COMMAND, even without --
	flags.VarP(&f.size, "nodes", "n", "worker, server and peer nodes, like 2w2s, 8w4s, 4p, 2w2s4p")
	flags.IntVar(&f.groupSize, "group-size", 0, "instances per node, each a process (default DMLC_GROUP_SIZE, else 1)")
	flags.StringVar(&f.van, "van", "", "how payload travels: auto, shm, tcp (default STEPVAN_VAN, else auto)")
	flags.StringVar(&f.server, "server-command", "", "shell command of the servers, instead of COMMAND")
	flags.StringVar(&f.peer, "peer-command", "", "shell command of the peers, instead of COMMAND")
	flags.StringVar(&f.scheduler, "scheduler-command", "", "shell command of the scheduler, instead of stepvan scheduler")
	flags.DurationVar(&f.timeout, "timeout", 0, "stop all processes after this time (default none)")
	flags.DurationVar(&f.grace, "grace", 5*time.Second, "time from SIGTERM to SIGKILL")
	flags.BoolVar(&f.noPrefix, "no-prefix", false, "print lines without the names of the processes")
}

// check refuses numbers that launch.Plan would replace by a default.
func (f *launchFlags) check(given func(flag string) bool) error {
	if given("group-size") && f.groupSize < 1 {
		return fmt.Errorf("--group-size: too small (got %d, want 1 or more): leave it out for DMLC_GROUP_SIZE", f.groupSize)
	}
	for flag, d := range map[string]time.Duration{"timeout": f.timeout, "grace": f.grace} {
		if given(flag) && d <= 0 {
			return fmt.Errorf("--%s: too short (got %v, want above 0): leave it out for the default", flag, d)
		}
	}
	return nil
}

func (f *launchFlags) run(ctx context.Context, command []string, out, errOut io.Writer) error {
	signals, release := launch.Signals()
	defer release()
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, errs.Late(fmt.Sprintf("--timeout %v has passed", f.timeout), context.DeadlineExceeded))
		defer cancel()
	}
	plan := f.plan(command)
	var err error
	if plan.Guard, err = f.self.Command(launch.GuardCommand); err != nil {
		return err
	}
	if err := refused(f.van); err != nil {
		return err
	}
	plan.Opening = func(s config.Settings) string { return opening(ctx, s) }
	plan.Stdout, plan.Stderr, plan.Signals = out, errOut, signals
	plan.Color = terminal.Color(out) && terminal.Color(errOut)
	return launch.Run(ctx, plan)
}

// refused is what this build refuses of the settings that all processes share. The processes would say it as well,
// but not of the variable that the user has set, as they get settings in one form.
func refused(van string) error {
	lookup := func(name string) (string, bool) {
		if name == "STEPVAN_VAN" && van != "" {
			return van, true
		}
		return config.OfProcess(name)
	}
	s, _, _ := config.FromEnv(lookup, nil) // what is missing or wrong, launch.Run says
	s.Role = stepvan.RoleScheduler
	if s.Van == config.VanMem {
		return nil // launch.Run says that children are processes
	}
	_, err := reach.Check(&s, false, lookup)
	return err
}

// newLaunchGuard makes the hidden command of the guard that `stepvan launch` starts.
func newLaunchGuard() *cobra.Command {
	return &cobra.Command{
		Use:    launch.GuardCommand,
		Short:  "Be the guard of `stepvan launch`, which starts it",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(c *cobra.Command, _ []string) error { return launch.Guard(c.InOrStdin()) },
	}
}

// tryTime is the limit for finding the van of a pair.
const tryTime = 5 * time.Second

// opening says what will run, and which van will carry its tensors.
func opening(ctx context.Context, s config.Settings) string {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	line := processes(s)
	van, reason, err := reach.TryPair(ctx, s)
	if err != nil {
		return line // the errors of the nodes say more
	}
	return fmt.Sprintf("%s; tensors by %s (%s)", line, van, reason)
}

// processes reads "a scheduler, 1 server and 2 workers", "a scheduler and 4 peers", or has all of them.
func processes(s config.Settings) string {
	servers, workers, peers := s.NumServerInstances(), s.NumWorkerInstances(), s.NumPeerInstances()
	switch {
	case peers == 0:
		return fmt.Sprintf("a scheduler, %s and %s", plural(servers, "server"), plural(workers, "worker"))
	case servers+workers == 0:
		return "a scheduler and " + plural(peers, "peer")
	}
	return fmt.Sprintf("a scheduler, %s, %s and %s", plural(servers, "server"), plural(peers, "peer"), plural(workers, "worker"))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// plan makes a launch.Plan of the flags.
func (f *launchFlags) plan(command []string) launch.Plan {
	plan := launch.Plan{
		Workers: f.size.Workers, Servers: f.size.Servers, Peers: f.size.Peers, GroupSize: f.groupSize,
		Worker: command, Server: command, Peer: command, Self: f.self, Prefix: !f.noPrefix, Grace: f.grace,
	}
	if f.server != "" {
		plan.Server = shell(f.server)
	}
	if f.peer != "" {
		plan.Peer = shell(f.peer)
	}
	if f.scheduler != "" {
		plan.Scheduler = shell(f.scheduler)
	}
	if f.van != "" {
		plan.Env = []string{"STEPVAN_VAN=" + f.van}
	}
	return plan
}

// shell is the command line that runs a shell command.
func shell(line string) []string { return []string{"/bin/sh", "-c", line} }
