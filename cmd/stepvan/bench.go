package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stepvan/stepvan/bench"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/launch"
)

// goals is the workload that is all of those that the project has goals for.
const goals = "goals"

// nodeCommand is the sub-command that a process of a measurement is.
const nodeCommand = "bench-node"

// benchFlags are the flags of `stepvan bench`.
type benchFlags struct {
	workload, van string
	options       bench.Options
	json          bool
}

func newBench() *cobra.Command {
	f := benchFlags{workload: goals, van: string(bench.TCP)}
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure exchanges, and what the machine itself needs for the same bytes",
		Long: `bench starts a scheduler, workers and servers (each a process; with --van mem all in
one), checks the bytes of some exchanges, and then measures in turns the exchange
and its limit: the same bytes over a bare non-blocking socket between the same two
processes (with --van mem: copies in memory). The ratio is that of the medians.

Workloads:
  goals  echo, afd and start with one worker and one server, and the goals they have
  echo   a server sends back what it gets
  afd    a server answers with memory of its own, to all workers together, with the
         sizes of one layer of Step-3 (896 KiB pushed, 1.75 MiB pulled)
  start  processes start, exchange once and stop

--json writes one object per measurement: workload, van, workers, servers,
push_bytes, pull_bytes, inflight, progress, p50_us, p90_us, p99_us, p999_us, max_us,
rate (exchanges per second), gbps, limit (its name), limit_p50_us, ratio,
allocs_per_op and cpu_per_op_us (of all processes).`,
		Example: `  stepvan bench                                         all goals
  stepvan bench --workload echo --push 64KiB            64 KiB there and back
  stepvan bench --workload afd --workers 2 --servers 2 --inflight 3
  stepvan bench --workload echo --bulk 1GiB             8 bytes beside a bulk transfer
  stepvan bench --workload echo --pin 1 --json          all processes on the first core`,
		GroupID: groupInspect,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f.define(c)
	return c
}

// newBenchNode makes the command that `stepvan bench` starts; nobody else needs it.
func newBenchNode() *cobra.Command {
	return &cobra.Command{
		Use:                nodeCommand,
		Short:              "Be a process of `stepvan bench`, which starts it",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(c *cobra.Command, args []string) error { return bench.Node(c.Context(), args) },
	}
}

func (f *benchFlags) define(c *cobra.Command) {
	flags, o := c.Flags(), &f.options
	flags.StringVar(&f.workload, "workload", f.workload, "what to measure: "+words(append([]bench.Workload{goals}, bench.Workloads...)))
	flags.StringVar(&f.van, "van", f.van, "how payload travels: "+words(bench.Vans))
	flags.IntVar(&o.Workers, "workers", 1, "workers")
	flags.IntVar(&o.Servers, "servers", 1, "servers; each gets every push and answers every pull")
	flags.Var(&o.Push, "push", "bytes pushed to each server, like 8, 4KiB, 1.75MiB (default echo 8, afd 896KiB)")
	flags.Var(&o.Pull, "pull", "bytes pulled from each server (default echo as --push, afd 1.75MiB)")
	flags.IntVar(&o.Inflight, "inflight", 1, "exchanges that each worker keeps in flight")
	flags.Var(&o.Bulk, "bulk", "bytes of a further pull that is in flight all the time (default none)")
	flags.StringVar(&o.Progress, "progress", bench.Progresses[0], "how nodes wait: "+strings.Join(bench.Progresses, ", "))
	flags.DurationVar(&o.Duration, "duration", 3*time.Second, "time of all rounds, those of the limit included")
	flags.IntVar(&o.Count, "count", 0, "exchanges of each worker, or starts, in place of --duration")
	flags.IntVar(&o.Rounds, "rounds", 10, "rounds of limit and measurement")
	flags.IntVar(&o.Pin, "pin", 0, "pin every process to this core, counted from 1 (default none)")
	flags.StringVar(&o.Profile, "profile", "", "folder that gets the CPU profile of each process (default none)")
	flags.BoolVar(&f.json, "json", false, "write JSON, one object per line")
	c.MarkFlagsMutuallyExclusive("duration", "count")
	for _, name := range []string{"push", "pull", "bulk"} {
		flags.Lookup(name).DefValue = "" // the texts say what 0 stands for
	}
}

func words[T ~string](values []T) string {
	var out []string
	for _, v := range values {
		out = append(out, string(v))
	}
	return strings.Join(out, ", ")
}

// complete adds to the options what no flag says.
func (f *benchFlags) complete(errOut io.Writer) (o bench.Options, err error) {
	o = f.options
	o.Workload, o.Van, o.Stderr = bench.Workload(f.workload), bench.Van(f.van), errOut
	if o.Workers < 1 || o.Servers < 1 || o.Inflight < 1 || o.Rounds < 1 {
		return o, errs.Invalid("--workers, --servers, --inflight and --rounds must be 1 at least")
	}
	if o.Count == 0 && o.Duration <= 0 {
		return o, errs.Invalid("--duration %v is no time to measure in: write 3s, or --count", o.Duration)
	}
	if o.Profile != "" {
		if err := os.MkdirAll(o.Profile, 0o777); err != nil {
			return o, fmt.Errorf("--profile: %w", err)
		}
	}
	o.Node, err = launch.Self(nodeCommand)
	return o, err
}

func (f *benchFlags) run(ctx context.Context, out, errOut io.Writer) error {
	o, err := f.complete(errOut)
	if err != nil {
		return err
	}
	signals, release := launch.Signals()
	defer release()
	o.Signals = signals
	if f.workload == goals {
		return f.runGoals(ctx, o, out)
	}
	r, err := bench.Run(ctx, o)
	switch {
	case err != nil:
		return err
	case f.json:
		return r.WriteJSON(out)
	}
	return bench.WriteTable(out, r)
}

// runGoals measures all goals and says which are met.
func (f *benchFlags) runGoals(ctx context.Context, o bench.Options, out io.Writer) error {
	if o.Workers != 1 || o.Servers != 1 || o.Inflight != 1 ||
		o.Push != 0 || o.Pull != 0 || o.Bulk != 0 || o.Profile != "" || o.Van != bench.TCP {
		return errs.Invalid("the goals have a van, nodes and sizes of their own: choose a workload with --workload, %s", words(bench.Workloads))
	}
	o.Count = 0
	var failed error
	var reports []*bench.Report
	verdicts, err := bench.RunGoals(ctx, o, func(r *bench.Report) {
		if reports = append(reports, r); f.json && failed == nil {
			failed = r.WriteJSON(out)
		}
	})
	if err = errors.Join(err, failed); err != nil || f.json {
		return err
	}
	if err := bench.WriteTable(out, reports...); err != nil {
		return err
	}
	fmt.Fprintln(out)
	return bench.WriteGoals(out, verdicts)
}
