package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stepvan/stepvan/bench"
	"github.com/stepvan/stepvan/bench/refit"
	"github.com/stepvan/stepvan/bench/work"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/launch"
	"github.com/stepvan/stepvan/internal/text"
)

// benchFlags are the flags of `stepvan bench`.
type benchFlags struct {
	self                        launch.Program
	workloads, vans, progresses []string
	nodes, peers                []string
	python                      string
	workers, servers            []int
	pushes, pulls               sizes
	thinks                      thinks
	sweep                       bool
	bytes, rows                 bench.Size // of the model of refit
	options                     bench.Options
	json                        bool
	html                        string
	given                       func(flag string) bool // on the command line
}

func (f *benchFlags) define(c *cobra.Command) {
	flags, o := c.Flags(), &f.options
	flags.StringSliceVar(&f.workloads, "workload", f.workloads, "what to measure: "+words(append([]bench.Workload{goals}, bench.Workloads...)))
	flags.StringSliceVar(&f.vans, "van", f.vans, "how payload travels: "+words(bench.Vans))
	flags.IntSliceVar(&f.workers, "workers", nil, "workers (default 1, pairs 2, incast and batch 8)")
	flags.IntSliceVar(&f.servers, "servers", nil, "servers; each gets every push and answers every pull (default 1, fanout 4, pairs as --workers)")
	flags.Var(&f.pushes, "push", "bytes pushed to each server, like 8, 4KiB, 1.75MiB (default 8, afd and afd3 896KiB, bus 16KiB, weights 256MiB)")
	flags.Var(&f.pulls, "pull", "bytes pulled from each server (default as --push, afd and afd3 twice as many, weights 8)")
	flags.BoolVar(&f.sweep, "sweep", false, "push sizes from 8 B to 1 GiB, or the largest that fits the memory")
	flags.IntVar(&o.Inflight, "inflight", 0, "exchanges that each worker keeps in flight (default 1, afd3 3, batch 64)")
	flags.BoolVar(&o.InPlace, "in-place", false, "the server of afd computes in the worker's memory where it can")
	flags.DurationVar(&o.Compute, "compute", 0, "time that each side of afd3 computes per micro-batch (default 273µs)")
	flags.Var(&f.thinks, "think", "time that the server of echo, pairs or afd computes before an answer: one like 100us, a range like 100us-1ms, or a mixture like 90%100us+10%5ms (default none)")
	flags.BoolVar(&o.Work.Sleep, "sleep", false, "the server sleeps for the time of --think instead of computing, so that both sides wait")
	flags.BoolVar(&o.Work.Fresh, "fresh", false, "both sides of echo or afd write what they send anew, and read what they get")
	flags.Var(&o.Bulk, "bulk", "also keep one pull of this size in flight (default none)")
	flags.Var(&o.Refit.From, "from", "layout of the sources of refit, like tp4 or tp2ep2 (default tp4)")
	flags.Var(&o.Refit.To, "to", "layout of the destinations of refit (default tp2ep2, with --moves dp2)")
	flags.Var(&f.bytes, "bytes", "size of the model of refit (default 1GiB)")
	flags.IntVar(&o.Refit.Dim, "dim", 0, "dimension along which the matrices of refit are divided: 0 rows, 1 columns")
	flags.Var(&f.rows, "rows", "bytes that lie side by side on both sides of refit with --dim 1 (default 2KiB)")
	flags.StringVar((*string)(&o.Refit.Memory), "memory", "", "memory of the models of refit: "+words(refit.Memories)+"; one is destinations, torch: none is shared (default shared)")
	flags.IntVar(&o.Refit.Moves, "moves", 0, "so many moves of 8 bytes in place of the model of refit (default a model)")
	flags.BoolVar(&o.Processes.Apart, "apart", false, "bus: the clients are in processes of their own; particles: the particle lives at the other peer")
	flags.BoolVar(&o.Refit.Pair, "pair", false, "only the first source and the first destination of refit take part")
	flags.StringSliceVar(&f.progresses, "progress", f.progresses, "how nodes wait: "+strings.Join(bench.Progresses, ", "))
	flags.StringSliceVar(&f.nodes, "nodes", f.nodes, "programs of workers and servers: "+words(bench.AllNodes)+"; numpy and torch are in Python and compared with go")
	flags.StringSliceVar(&f.peers, "peer", nil, "also measure this library: "+words(bench.Peers)+"; nixl with echo and afd between two processes, and with refit, gloo with refit")
	flags.StringVar(&f.python, "python", "", "Python interpreter with package stepvan, for --nodes numpy and torch and --peer (default the one that runs this, or python3)")
	flags.BoolVar(&o.Processes.Together, "one-process", false, "all nodes in one process")
	flags.DurationVar(&o.Duration, "duration", 3*time.Second, "time of all rounds of a measurement, limit included; with --sweep 1s")
	flags.IntVar(&o.Count, "count", 0, "exchanges of each worker, or starts, instead of --duration")
	flags.IntVar(&o.Rounds, "rounds", 10, "rounds of limit and measurement")
	flags.IntVar(&o.Cores.Pin, "pin", 0, "pin every process to this core, counted from 1 (default none)")
	flags.Float64Var(&o.Cores.Quota, "quota", 0, "cores whose time all processes together may use, by a control group (default no limit)")
	flags.BoolVar(&o.Cores.Busy, "busy", false, "a program computes on every core meanwhile; shows what it loses beside the nodes")
	flags.StringVar(&o.Profile, "profile", "", "folder for a CPU profile of each process (default none)")
	flags.BoolVar(&f.json, "json", false, "write JSON, one object per line")
	flags.StringVar(&f.html, "html", "", "write a page with curves to this file (default none)")
	c.MarkFlagsMutuallyExclusive("duration", "count")
	c.MarkFlagsMutuallyExclusive("sweep", "push")
	for _, name := range []string{"push", "pull", "bulk", "think", "quota", "from", "to", "bytes", "rows"} {
		flags.Lookup(name).DefValue = "" // the help texts name the defaults
	}
}

func words[T ~string](values []T) string { return strings.Join(asStrings(values), ", ") }

func asStrings[T ~string](values []T) (out []string) {
	for _, v := range values {
		out = append(out, string(v))
	}
	return out
}

// base is the options that all measurements share.
func (f *benchFlags) base(errOut io.Writer) (o bench.Options, err error) {
	if err := errors.Join(f.checkWords(), f.checkNumbers()); err != nil {
		return o, err
	}
	o = f.options
	o.Refit.Bytes, o.Refit.Row = int64(f.bytes), int64(f.rows)
	o.Console.Stderr = errOut
	switch {
	case o.Count > 0:
		o.Duration = 0
	case f.sweep && !f.given("duration"):
		o.Duration = sweepTime
	}
	if o.Profile != "" {
		if err := os.MkdirAll(o.Profile, 0o777); err != nil {
			return o, fmt.Errorf("--profile: %w: name another folder", err)
		}
	}
	if o.Node, err = f.self.Command(nodeCommand); err != nil {
		return o, err
	}
	o.Python = f.interpreter(o.Node)
	return o, nil
}

// torchStore is a library that people ask for, and that no measurement can have: see the error.
const torchStore = "torchstore"

var errTorchStore = errs.Invalid("--peer %s cannot run between these processes: torchstore 0.1.2 needs torchmonarch 0.1.2, whose library needs libcuda.so.1 "+
	"of the NVIDIA driver also on the CPU, and later torchmonarch refuses it (docs/performance.md): compare with %s", torchStore, words(bench.Peers))

// checkWords refuses unknown words. Of nodes and peers, each flag knows its own.
func (f *benchFlags) checkWords() error {
	if slices.ContainsFunc(f.peers, func(word string) bool { return strings.TrimSpace(word) == torchStore }) {
		return errTorchStore
	}
	for _, list := range []struct {
		flag         string
		given, known []string
	}{
		{"workload", f.workloads, append([]string{goals}, asStrings(bench.Workloads)...)},
		{"van", f.vans, asStrings(bench.Vans)},
		{"progress", f.progresses, bench.Progresses},
		{"nodes", f.nodes, asStrings(bench.AllNodes)},
		{"peer", f.peers, asStrings(bench.Peers)},
	} {
		known := strings.Join(list.known, ", ")
		if f.given(list.flag) && len(list.given) == 0 {
			return errs.Invalid("--%s is empty: write %s", list.flag, known)
		}
		for _, word := range list.given {
			if !slices.Contains(list.known, strings.TrimSpace(word)) {
				return errs.Invalid("--%s %q is unknown: write %s", list.flag, text.Cut(word), known)
			}
		}
	}
	return nil
}

// checkNumbers refuses numbers that mean nothing. The zeros of flags that were not given mean the default.
func (f *benchFlags) checkNumbers() error {
	o := &f.options
	for _, number := range []struct {
		flag   string
		values []int
	}{
		{"workers", f.workers},
		{"servers", f.servers},
		{"rounds", []int{o.Rounds}},
		{"count", []int{o.Count}},
		{"inflight", []int{o.Inflight}},
		{"pin", []int{o.Cores.Pin}},
		{"compute", []int{int(o.Compute)}},
		{"duration", []int{int(o.Duration)}},
		{"bytes", []int{int(f.bytes)}},
		{"rows", []int{int(f.rows)}},
		{"moves", []int{o.Refit.Moves}},
	} {
		if f.given(number.flag) && slices.ContainsFunc(number.values, func(n int) bool { return n < 1 }) {
			return errs.Invalid("--%s must be above 0: leave it out for the default", number.flag)
		}
	}
	return nil
}

// interpreter is the one that --python names, or the one that runs this command: `python -m
// stepvan`.
func (f *benchFlags) interpreter(self []string) []string {
	switch {
	case f.python != "":
		return []string{f.python}
	case len(self) > 1 && self[1] == "-m":
		return self[:1]
	}
	return []string{"python3"}
}

// checkGoals reports whether all goals are wanted, with which few flags go.
func (f *benchFlags) checkGoals() (bool, error) {
	if !slices.Contains(f.workloads, goals) {
		return false, nil
	}
	for _, name := range []string{
		"van", "workers", "servers", "push", "pull", "sweep", "inflight", "in-place", "compute", "think", "sleep", "fresh", "bulk",
		"progress", "one-process", "count", "pin", "quota", "busy", "profile", "from", "to", "bytes", "dim", "rows", "memory", "moves", "pair", "apart",
	} {
		if f.given(name) {
			return true, errs.Invalid("--%s does not go with the goals, which have vans, nodes and sizes of their own: choose another workload with --workload %s", name, words(bench.Workloads))
		}
	}
	if len(f.workloads) > 1 {
		return true, errs.Invalid("--workload %s: goals are measured alone", strings.Join(f.workloads, ","))
	}
	return true, nil
}

// goals lists those of the nodes that are asked for, and of the comparisons with peers.
func (f *benchFlags) goals() (all []bench.Goal) {
	for _, nodes := range typed[bench.Nodes](f.nodes) {
		if nodes.Python() {
			all = append(all, bench.PythonGoals(nodes)...)
		} else {
			all = append(all, bench.Goals()...)
		}
		for _, peer := range typed[bench.Nodes](f.peers) {
			all = append(all, bench.PeerGoals(nodes, peer)...)
		}
	}
	return all
}

// plan lists the measurements.
func (f *benchFlags) plan(base bench.Options) (bench.Plan, error) {
	m := bench.Matrix{
		Base: base, Workloads: typed[bench.Workload](f.workloads), Vans: typed[bench.Van](f.vans), Progresses: typed[string](f.progresses), Nodes: typed[bench.Nodes](slices.Concat(f.nodes, f.peers)),
		Workers: f.workers, Servers: f.servers, Pushes: f.pushes, Pulls: f.pulls, Thinks: f.thinks,
	}
	if f.sweep {
		m.Pushes = bench.SweepSizes()
	}
	plan, err := m.Plan()
	if err != nil {
		return nil, err
	}
	return plan, plan.Check()
}

// sweepTime is the time of each point of a sweep.
const sweepTime = time.Second

// goalsPlan lists the measurements of goals. A page shows two sweeps besides them: over sizes, and
// over the times that servers compute. What the goals have is not measured again.
func (f *benchFlags) goalsPlan(wanted []bench.Goal, base bench.Options) (bench.Plan, error) {
	plan := bench.PlanGoals(wanted, base)
	if f.html == "" {
		return plan, nil
	}
	f.sweep = true
	base.Workload, base.Duration = bench.Echo, min(base.Duration, sweepTime)
	sizes := slices.DeleteFunc(bench.SweepSizes()[1:], func(s bench.Size) bool { return s > pageSweepMost })
	sweep, err := bench.Matrix{Base: base, Vans: bench.Vans, Pushes: sizes}.Plan()
	if err != nil {
		return nil, err
	}
	thinking, err := bench.Matrix{
		Base: base, Vans: []bench.Van{bench.Shm, bench.TCP}, Nodes: typed[bench.Nodes](slices.Concat(f.nodes, f.peers)), Thinks: pageThinks,
	}.Plan()
	return slices.Concat(plan, sweep, plan.Missing(thinking)), err
}

// pageThinks are the times that the servers of a page compute.
var pageThinks = thinks{
	work.Constant(10 * time.Microsecond), work.Constant(30 * time.Microsecond), work.Constant(100 * time.Microsecond), work.Constant(300 * time.Microsecond),
	work.Constant(time.Millisecond), work.Constant(3 * time.Millisecond), work.Constant(10 * time.Millisecond),
}

// pageSweepMost keeps the time of a page short.
const pageSweepMost = 128 << 20

func typed[T ~string](words []string) (out []T) {
	for _, w := range words {
		out = append(out, T(strings.TrimSpace(w)))
	}
	return out
}

// sizes is a list of sizes as a flag.
type sizes []bench.Size

// Set adds sizes separated by commas.
func (s *sizes) Set(list string) error {
	for _, word := range strings.Split(list, ",") {
		one, err := bench.ParseSize(word)
		if err != nil {
			return err
		}
		if one < 1 {
			return errs.Invalid("size %q is too small: write at least 1 byte", text.Cut(word))
		}
		*s = append(*s, one)
	}
	return nil
}

// String is the flag's value.
func (s *sizes) String() string {
	var out []string
	for _, one := range *s {
		out = append(out, one.String())
	}
	return strings.Join(out, ",")
}

// Type is the placeholder in the help text.
func (*sizes) Type() string { return "sizes" }

// thinks is a list of times that servers compute, as a flag.
type thinks []work.Times

// Set adds times separated by commas.
func (t *thinks) Set(list string) error {
	for _, word := range strings.Split(list, ",") {
		one, err := work.ParseTimes(word)
		if err != nil {
			return err
		}
		*t = append(*t, one)
	}
	return nil
}

// String is the flag's value.
func (t *thinks) String() string {
	var out []string
	for _, one := range *t {
		out = append(out, one.String())
	}
	return strings.Join(out, ",")
}

// Type is the placeholder in the help text.
func (*thinks) Type() string { return "times" }
