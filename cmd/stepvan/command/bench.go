package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stepvan/stepvan/bench"
	"github.com/stepvan/stepvan/bench/page"
	"github.com/stepvan/stepvan/internal/launch"
)

// goals is the workload that is all of those that the project has goals for.
const goals = "goals"

// nodeCommand is the sub-command that a process of a measurement is.
const nodeCommand = "bench-node"

const benchLong = `bench starts a scheduler, workers and servers (each a process; with --van mem or
--one-process all in one), checks the bytes of some exchanges, and then measures in
turns the exchange and its limit: what the same nodes need for the same bytes with
nothing between. Lists like --van tcp,shm or --push 8,64KiB measure each combination;
vans and ways of waiting alternate in rounds, so that they meet the same conditions.

Workloads:
  goals    what the project has goals for, and whether they are met
  echo     a server sends back what it gets
  afd      a server answers with memory of its own, to all workers together, with the
           sizes of one layer of Step-3 (896 KiB pushed, 1.75 MiB pulled)
  afd3     a pipeline: attention (a worker computes), afd, FFN (a server computes), with
           three micro-batches in flight; timed is a layer of a micro-batch
  incast   8 workers, one server: what a request costs, by what it costs one worker
  fanout   one worker, 4 servers
  weights  256 MiB one way and 8 bytes back
  barrier  all workers and servers wait for each other
  batch    8 workers, one server: what it takes to get a batch that is there, and answer it
  start    processes start, exchange once and stop

Limits: non-blocking sockets in tight loops; Go's netpoll with --progress park; with
shared memory two processes that copy the bytes there and raise a flag.

--nodes numpy,torch has workers and servers that are programs in Python and exchange tensors
of numpy or torch. They take their rounds in turns with the same between Go nodes, which is
their limit. Without --workload it measures the goals of those nodes: go,torch has both.

--peer nixl has two processes in Python that exchange the same bytes with agents of NIXL, and
takes their rounds in turns too: echo and afd, one worker and one server, --van shm and tcp.
It needs NIXL beside stepvan: pip install --no-deps nixl-cu12==1.5.1 nixl==1.5.1 numpy

--json writes one object per measurement: workload, van, workers, servers,
push_bytes, pull_bytes, inflight, progress, p50_us, p90_us, p99_us, p999_us, max_us,
rate (exchanges per second), gbps, limit (its name), limit_p50_us, ratio,
allocs_per_op and cpu_per_op_us (of all processes), nodes and over_go_us (in Python: p50
above that of Go nodes); then how it was measured, the spread, percentiles for curves, and the figures of each round.`

const benchExample = `  stepvan bench                                         all goals
  stepvan bench --html bench.html                       and a page with them and a sweep
  stepvan bench --workload echo --van tcp,shm --sweep   8 B to 1 GiB, side by side
  stepvan bench --workload afd --workers 2 --servers 2 --inflight 3
  stepvan bench --workload incast --workers 64,256 --one-process
  stepvan bench --workload echo --bulk 1GiB             8 bytes beside a bulk transfer
  stepvan bench --workload echo --pin 1 --json          all processes on the first core
  stepvan bench --workload echo,afd --van shm --nodes go,torch     Python beside Go
  stepvan bench --workload echo,afd --van shm --nodes go,torch --peer nixl
  stepvan bench compare old.json new.json               what has changed`

func newBench() *cobra.Command {
	f := &benchFlags{workloads: []string{goals}, vans: []string{string(bench.TCP)}, progresses: bench.Progresses[:1], nodes: []string{string(bench.GoNodes)}}
	c := &cobra.Command{
		Use:     "bench",
		Short:   "Measure exchanges, and what the machine itself needs for the same bytes",
		Long:    benchLong,
		Example: benchExample,
		GroupID: groupInspect,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f.define(c)
	f.given = func(flag string) bool { return c.Flags().Changed(flag) }
	c.AddCommand(newBenchCompare())
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

// run measures, and writes what the flags ask for.
func (f *benchFlags) run(ctx context.Context, out, errOut io.Writer) error {
	checkGoals, err := f.checkGoals()
	if err != nil {
		return err
	}
	base, err := f.base(errOut)
	if err != nil {
		return err
	}
	signals, release := launch.Signals()
	defer release()
	base.Signals = signals
	var plan bench.Plan
	if !checkGoals {
		if plan, err = f.plan(base); err != nil {
			return err
		}
	}
	html, err := createPage(f.html)
	if err != nil {
		return err
	}
	defer html.discard()
	results := &benchResults{flags: f, out: out, errOut: errOut, html: html, reasons: map[string]bool{}}
	if checkGoals {
		return results.goals(ctx, base)
	}
	return results.plan(ctx, plan)
}

// benchResults collects what is measured and writes it.
type benchResults struct {
	flags       *benchFlags
	out         io.Writer
	errOut      io.Writer
	html        *pageFile // nil: none
	reports     []*bench.Report
	goalResults []bench.GoalResult
	failed      error           // of what could not be measured or written
	reasons     map[string]bool // those that are part of it
}

// watch tells on the error output what is being measured, when there is more than one thing.
func (b *benchResults) watch() bench.Watch {
	return bench.Watch{
		Begin: func(names []string, done, all int) {
			if all > len(names) {
				fmt.Fprintf(b.errOut, "%d of %d: %s\n", done+1, all, strings.Join(names, ", "))
			}
		},
		Done: b.add,
	}
}

func (b *benchResults) add(o bench.Outcome) {
	if o.Err != nil {
		return // told where it belongs
	}
	b.reports = append(b.reports, o.Report)
	if b.flags.json {
		b.failed = errors.Join(b.failed, o.Report.WriteJSON(b.out))
	}
}

func (b *benchResults) plan(ctx context.Context, p bench.Plan) error {
	outcomes, err := p.Run(ctx, b.watch())
	if err != nil {
		return err
	}
	b.note(outcomes)
	return b.write()
}

// note keeps the errors of measurements. Those of a sweep for which the machine is too small are none.
func (b *benchResults) note(outcomes []bench.Outcome) {
	for _, o := range outcomes {
		if b.flags.sweep && errors.Is(o.Err, bench.ErrTooLarge) {
			fmt.Fprintln(b.errOut, "left out:", o.Err)
			continue
		}
		b.fail(o.Err)
	}
}

// fail keeps an error, unless another measurement failed for the same reason.
func (b *benchResults) fail(err error) {
	if err == nil || b.reasons[bench.Reason(err)] {
		return
	}
	b.reasons[bench.Reason(err)] = true
	b.failed = errors.Join(b.failed, err)
}

// goals measures all goals, and the sweep for the page.
func (b *benchResults) goals(ctx context.Context, base bench.Options) (err error) {
	base.Stderr = nil // what a process says when it fails is part of the error
	var more bench.Plan
	if b.html != nil {
		b.flags.sweep = true
		if more, err = pageSweep(base); err != nil {
			return err
		}
	}
	goalResults, further, err := bench.RunGoals(ctx, base, b.flags.goals(), more, b.watch())
	if err != nil {
		return err
	}
	b.goalResults = goalResults
	b.note(further)
	for i := range goalResults {
		b.fail(goalResults[i].Err)
	}
	return b.write()
}

// write writes tables and page.
func (b *benchResults) write() error {
	if !b.flags.json {
		b.failed = errors.Join(b.failed, b.tables())
	}
	if b.html != nil {
		b.failed = errors.Join(b.failed, b.page())
	}
	return b.failed
}

func (b *benchResults) tables() error {
	if len(b.reports) > 0 {
		if err := bench.WriteTable(b.out, b.reports...); err != nil {
			return err
		}
	}
	if len(b.goalResults) == 0 {
		return nil
	}
	fmt.Fprintln(b.out)
	return bench.WriteGoals(b.out, b.goalResults)
}

// page puts the page in its place. Where nothing could be measured the last one stays.
func (b *benchResults) page() error {
	if len(b.reports) == 0 {
		return nil
	}
	err := b.html.publish(&page.Content{Reports: b.reports, GoalResults: b.goalResults, Made: time.Now(), Version: version()})
	if err == nil {
		fmt.Fprintln(b.errOut, "wrote", b.flags.html)
	}
	return err
}

// version is that of this program where the build knows it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

func makeFolder(path string) error {
	if path == "" {
		return nil
	}
	if err := os.MkdirAll(path, 0o777); err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	return nil
}
