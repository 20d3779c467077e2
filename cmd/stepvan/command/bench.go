package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stepvan/stepvan/bench"
	"github.com/stepvan/stepvan/bench/page"
	"github.com/stepvan/stepvan/internal/launch"
	"github.com/stepvan/stepvan/internal/version"
)

// goals is the workload that measures the goals of the project.
const goals = "goals"

// nodeCommand is the sub-command of the processes of a measurement.
const nodeCommand = "bench-node"

const benchLong = `bench starts a scheduler, workers and servers, and checks the bytes of some exchanges.
Each node is a process; with --van mem or --one-process all nodes are in one. Then it
measures, in turns, the exchange and its limit: the time that the same nodes need for
the same bytes without stepvan. Lists like --van tcp,shm or --push 8,64KiB measure each
combination. Vans, programs and ways of waiting alternate in rounds, under the same conditions.

Workloads:

    goals    the goals of the project, and whether they are met
    echo     a server sends back what it gets
    afd      a server answers with memory of its own, to all workers at once, with the
             sizes of one layer of Step-3 (896 KiB pushed, 1.75 MiB pulled)
    afd3     a pipeline of attention (worker), afd and FFN (server) with three
             micro-batches in flight; one layer of one micro-batch is timed
    incast   8 workers, one server: the cost of a request, compared with one worker
    fanout   one worker, 4 servers
    pairs    echo of 2 workers, each with a server of its own
    weights  256 MiB one way and 8 bytes back
    barrier  all workers and servers wait for each other
    batch    8 workers, one server: taking a batch that has arrived, and answering it
    idle     nodes exchange nothing: the processor time that they use
    start    processes start, exchange once and stop
    p2p      two peers send a tensor back and forth
    put      a peer writes into a window of another one, which answers the note
    refit    the weights of a model move from one parallel layout to another
    bus      a registered tensor moves over the tensor bus
    replay   collectors fill a learner's slot with the rows of a batch
    particles
             a message to a particle and back

Limits: non-blocking sockets in tight loops; with --progress park Go's netpoll; with
shared memory two processes that copy the bytes and raise a flag.

--think makes the server of echo and afd compute before it answers: one time (100us), a
range (100us-1ms) or a mixture (90%100us+10%5ms). The worker draws the time of each exchange
and pushes it. The figures, and those of the limit, are what comes above the computing;
column waiting is the processor time of the worker's process while it waits.

--think with --sleep lets the server sleep instead, so that both sides only wait.

--busy starts a program that computes on every core, and measures what it loses beside the
nodes: column lost is the share of its rate alone. What the server computes does not count.

--quota 1.5 runs all processes in a control group that may use so many cores' time. Columns
throttled/s and stopped say how often and how long the kernel stops them. It needs root.

--fresh makes both sides of echo and afd write what they send and read what they get, as
programs do. That is within the time of an exchange, and the limit does the same.

--nodes numpy,torch measures workers and servers in Python, with tensors of numpy or torch.
Their limit is the same between Go nodes, in turns. Without --workload bench measures the
goals of these nodes; --nodes go,torch measures both. With --peer nixl it also compares
these nodes with NIXL.

--peer gloo measures refit by torch.distributed, as Megatron-core does it: contiguous boxes,
batch_isend_irecv, and a copy into each parameter. --peer nixl measures refit, too: each
destination reads the boxes out of the memory of the sources. --peer torchstore says why it
cannot be measured.

--peer nixl measures two processes in Python that exchange the same bytes with agents of
NIXL, in turns with the others. It measures echo and afd with one worker and one server, and
--van shm, tcp and rdma. It needs NIXL: pip install --no-deps nixl-cu12==1.5.1 nixl==1.5.1 numpy

--from and --to are the layouts of refit: tp, ep and dp with the ranks that share matrices,
experts, and copies of all. Each rank is a process, and package reshard plans what moves.
The limit over shared memory is bare processes that copy the same boxes out of mapped
files; over sockets the same pairs write and read as many bytes. Column beyond is the
memory of all processes beyond their models. --pair leaves one source and one destination;
--moves 10000 moves so many pieces of 8 bytes.

The limit of bus is a plan between the same agents that moves as many bytes; column above
limit is what a round takes besides. --apart gives the clients processes of their own, apart
from their agents.

In replay --push is the size of a row, and --pull that of a batch; --inflight 2 prepares the
next batch meanwhile. The limit is bare processes that pick as many rows.

With --apart the particle of particles lives at the other peer. Within one peer it has no limit.

--json writes one object per measurement. The first fields say what was measured:
workload, van, workers, servers, push_bytes, pull_bytes, inflight, progress.
The times of an exchange follow: p50_us, p90_us, p99_us, p999_us, max_us.
The next fields are rate (exchanges per second), gbps, limit (its name), limit_p50_us
and ratio. The last ones are allocs_per_op and cpu_per_op_us (of all processes). Where
they apply come nodes, think, sleep, fresh, quota, busy, and over_go_us (in Python: p50 above
that of Go nodes), apart and above_limit_us (of bus). With --think and idle comes waiting_cpu
(share of a core), with --busy lost (share of the rate), with --quota throttled (per second).
The options, the spread, percentiles for curves, and the figures of each round follow.`

const benchExample = `    stepvan bench                                         all goals
    stepvan bench --html bench.html                       and a page with them and a sweep
    stepvan bench --workload echo --van tcp,shm --sweep   8 B to 1 GiB, side by side
    stepvan bench --workload afd --workers 2 --servers 2 --inflight 3
    stepvan bench --workload incast --workers 64,256 --one-process
    stepvan bench --workload echo --bulk 1GiB             8 bytes beside a bulk transfer
    stepvan bench --workload echo --pin 1 --json          all processes on the first core
    stepvan bench --workload echo --van shm,tcp --think 100us,100us-1ms   a computing server
    stepvan bench --workload echo --van shm --think 5ms-15ms --sleep --busy --progress auto,park
    stepvan bench --workload pairs --van shm --think 300us --quota 2 --progress auto,park
    stepvan bench --workload afd --van shm --fresh        programs write and read the bytes
    stepvan bench --workload echo,afd --van shm --nodes go,torch     Python beside Go
    stepvan bench --workload echo,afd --van shm --nodes go,torch --peer nixl
    stepvan bench --workload p2p --van shm,tcp --sweep    tagged transfers
    stepvan bench --workload refit --van shm,tcp --from tp4 --to tp2ep2 --dim 1 --rows 512
    stepvan bench --workload refit --van shm --from tp4 --to dp2 --moves 10000
    stepvan bench --workload bus --van shm                the tensor bus; also with --apart
    stepvan bench --workload replay --van shm,tcp --push 400 --pull 16MiB
    stepvan bench --workload particles --van shm,tcp --apart
    stepvan bench compare old.json new.json               what has changed`

func newBench(self launch.Program) *cobra.Command {
	f := &benchFlags{self: self, workloads: []string{goals}, vans: []string{string(bench.TCP)}, progresses: bench.Progresses[:1], nodes: []string{string(bench.GoNodes)}}
	c := &cobra.Command{
		Use:     "bench",
		Short:   "Measure exchanges, and the time of the same bytes without stepvan",
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

// newBenchNode makes the hidden command of the processes that `stepvan bench` starts.
func newBenchNode() *cobra.Command {
	return &cobra.Command{
		Use:                nodeCommand,
		Short:              "Internal: a process that `stepvan bench` starts",
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
	base.Console.Signals = signals
	var wanted []bench.Goal
	var plan bench.Plan
	if checkGoals {
		base.Console.Stderr = nil // the error quotes the process that failed
		wanted = f.goals()
		plan, err = f.goalsPlan(wanted, base)
	} else {
		plan, err = f.plan(base)
	}
	if err != nil {
		return err
	}
	html, err := createPage(f.html)
	if err != nil {
		return err
	}
	defer html.discard()
	b := &benchResults{flags: f, out: out, errOut: errOut, html: html, reasons: map[string]bool{}}
	outcomes, err := plan.Run(ctx, b.watch())
	if err != nil {
		return err
	}
	b.goalResults = bench.Results(wanted, outcomes)
	b.note(outcomes)
	return b.write()
}

// benchResults collects the reports and writes them.
type benchResults struct {
	flags       *benchFlags
	out         io.Writer
	errOut      io.Writer
	html        *pageFile // nil: none
	reports     []*bench.Report
	goalResults []bench.GoalResult
	failed      error           // of all measurements and outputs
	reasons     map[string]bool // the reasons in failed
}

// watch prints the names of a group on the error output, when there are several groups.
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
		return // note and fail keep it
	}
	b.reports = append(b.reports, o.Report)
	if b.flags.json {
		b.failed = errors.Join(b.failed, o.Report.WriteJSON(b.out))
	}
}

// note keeps the errors of measurements.
func (b *benchResults) note(outcomes []bench.Outcome) {
	for _, o := range outcomes {
		if b.leavesOut(o.Err) {
			fmt.Fprintln(b.errOut, "left out:", o.Err)
			continue
		}
		b.fail(o.Err)
	}
	for i := range b.goalResults {
		if err := b.goalResults[i].Err; !errors.Is(err, bench.ErrNoQuota) {
			b.fail(err)
		}
	}
}

// leavesOut reports whether a run is good without a measurement. A sweep leaves out sizes that need more memory than is
// free, and the goals those for which this process has no right.
func (b *benchResults) leavesOut(err error) bool {
	return b.flags.sweep && errors.Is(err, bench.ErrTooLarge) || len(b.goalResults) > 0 && errors.Is(err, bench.ErrNoQuota)
}

// fail keeps an error, unless another measurement failed for the same reason.
func (b *benchResults) fail(err error) {
	if err == nil || b.reasons[bench.Reason(err)] {
		return
	}
	b.reasons[bench.Reason(err)] = true
	b.failed = errors.Join(b.failed, err)
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

// page publishes the page. Without any report the old page stays.
func (b *benchResults) page() error {
	if len(b.reports) == 0 {
		return nil
	}
	err := b.html.publish(&page.Content{Reports: b.reports, GoalResults: b.goalResults, Made: time.Now(), Version: version.Text()})
	if err == nil {
		fmt.Fprintln(b.errOut, "wrote", b.flags.html)
	}
	return err
}
