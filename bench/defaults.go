package bench

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stepvan/stepvan/bench/refit"
	"github.com/stepvan/stepvan/internal/errs"
)

const (
	defaultDuration = 3 * time.Second
	defaultRounds   = 10
	defaultStarts   = 10
	maxNodes        = 1 << 12
	maxInflight     = 1 << 15
	maxBytes        = 1 << 40
	maxQuota        = 1 << 12
)

// withDefaults sets what is zero to its default. The error joins every mistake, in the words of the
// flags.
func (o Options) withDefaults() (Options, error) {
	o.setDefaults()
	return o, errors.Join(o.mistakes()...)
}

func (o *Options) setDefaults() {
	o.Workload = cmp.Or(o.Workload, Echo)
	o.Van = cmp.Or(o.Van, TCP)
	o.Progress = cmp.Or(o.Progress, progressAuto)
	o.Nodes = cmp.Or(o.Nodes, GoNodes)
	o.Rounds = cmp.Or(o.Rounds, defaultRounds)
	t := o.traits()
	if o.Workload == Refit {
		o.Refit.SetDefaults()
		o.Workers, o.Servers = cmp.Or(o.Workers, o.Refit.Sources()), cmp.Or(o.Servers, o.Refit.Destinations())
	}
	o.Workers = cmp.Or(o.Workers, t.workers, 1)
	if o.Workload == Pairs {
		o.Servers = cmp.Or(o.Servers, o.Workers)
	}
	o.Servers = cmp.Or(o.Servers, t.servers, 1)
	o.Inflight = cmp.Or(o.Inflight, t.inflight, 1)
	o.Push = cmp.Or(o.Push, t.push, smallBytes)
	o.Pull = cmp.Or(o.Pull, t.pull, o.Push*cmp.Or(t.pullsPerPush, 1))
	o.Compute = cmp.Or(o.Compute, t.compute)
	if o.Count == 0 {
		o.Duration = cmp.Or(o.Duration, defaultDuration)
	}
	if o.Workload == Idle && o.Count == 0 {
		o.Count, o.Duration = max(int(o.Duration/idleTime), 1), 0
	}
}

// mistakes lists values that no measurement has, and options that exclude each other.
func (o *Options) mistakes() []error {
	mistakes := []error{
		oneOf("--workload", o.Workload, Workloads),
		oneOf("--van", o.Van, Vans),
		oneOf("--progress", o.Progress, Progresses),
		oneOf("--nodes", o.Nodes, slices.Concat(AllNodes, Peers)),
		within("--workers", o.Workers, 1, maxNodes),
		within("--servers", o.Servers, 1, maxNodes),
		within("--inflight", o.Inflight, 1, maxInflight),
		within("--rounds", o.Rounds, 1, 1<<20),
		within("--count", o.Count, 0, 1<<40),
		within("--push", o.Push, 1, maxBytes),
		within("--pull", o.Pull, 1, maxBytes),
		within("--bulk", o.Bulk, 0, maxBytes),
		within("--compute", o.Compute, 0, time.Minute),
		within("--pin", o.Cores.Pin, 0, runtime.NumCPU()),
		within("--quota", o.Cores.Quota, 0, maxQuota),
		within("--duration", o.Duration, 0, 24*time.Hour),
	}
	mistakes = append(mistakes, o.contradictions()...)
	return slices.DeleteFunc(mistakes, func(err error) bool { return err == nil })
}

func within[T int | Size | float64 | time.Duration](flag string, value, least, most T) error {
	if value < least || value > most {
		return errs.Invalid("%s is out of range (got %v, want %v to %v)", flag, value, least, most)
	}
	return nil
}

func oneOf[T ~string](flag string, value T, words []T) error {
	if slices.Contains(words, value) {
		return nil
	}
	var names []string
	for _, w := range words {
		names = append(names, string(w))
	}
	return errs.Invalid("%s %q is unknown: write %s", flag, value, strings.Join(names, ", "))
}

// contradictions lists the options that exclude each other.
func (o *Options) contradictions() (mistakes []error) {
	refuse := func(mistake bool, format string, args ...any) {
		if mistake {
			mistakes = append(mistakes, errs.Invalid(format, args...))
		}
	}
	w, inside := o.Workload, o.inOneProcess()
	refuse(o.traits().echoes && o.Pull != o.Push, "--pull %v differs from --push %v: %s answers with what it gets; leave --pull out, or use --workload afd", o.Pull, o.Push, w)
	refuse(w == Barrier && o.Push != smallBytes, "--push %v has no meaning for --workload barrier, which carries no tensors: leave it out", o.Push)
	refuse(w == Barrier && o.Inflight != 1, "--inflight %d has no meaning for --workload barrier, where one is passed after the other: leave it out", o.Inflight)
	refuse(w == Idle && (o.Push != smallBytes || o.Inflight != 1), "--push and --inflight have no meaning for --workload idle, which exchanges nothing: leave them out")
	refuse(w == Idle && inside, "--workload idle is about processes: use --van tcp, unix or shm, without --one-process")
	refuse(w != Echo && o.Bulk != 0, "--bulk needs --workload echo (got %s): leave it out", w)
	refuse(w == Start && inside, "--workload start is about processes: use --van tcp, unix or shm, without --one-process")
	refuse(w == Start && o.Profile != "", "--profile has nothing to measure with --workload start: use another")
	refuse(w == Incast && o.Workers == 1, "--workers 1 is what --workload incast is compared with: use 2 or more, or --workload echo")
	refuse(o.InPlace && w != AFD && w != AFD3, "--in-place needs --workload afd or afd3 (got %s, which has nothing to compute): leave it out", w)
	refuse(o.Compute != 0 && w != AFD3, "--compute needs --workload afd3 (got %s): leave it out", w)
	if o.Work.Any() || o.Work.Sleep {
		checkWork(o, refuse)
	}
	refuse(w == Pairs && o.Servers != o.Workers, "--servers %d differs from --workers %d: each worker of --workload pairs has a server of its own; leave --servers out", o.Servers, o.Workers)
	refuse(w == Pairs && inside, "--workload pairs is about processes: use --van tcp, unix or shm, without --one-process")
	o.Cores.check(w, inside, refuse)
	checkPeers(refuse, o)
	refuse(!inside && len(o.Node) == 0, "Options.Node is missing: the command line of the program for each process")
	if o.Nodes.Python() {
		o.checkPython(func(mistake bool, what, instead string) {
			refuse(mistake, "%s does not work with %s: %s", what, o.Nodes.flag(), instead)
		})
		refuse(len(o.Python) == 0 && !inside, "Options.Python is missing: the command line of the interpreter")
	}
	return mistakes
}

// checkPeers finds what does not go with nodes that have the role peer.
func checkPeers(refuse func(mistake bool, format string, args ...any), o *Options) {
	w, inside := o.Workload, o.inOneProcess()
	refuse(w != Refit && o.Refit != (refit.Spec{}), "--from, --to, --bytes, --dim, --rows, --memory, --moves and --pair need --workload refit (got %s): leave them out", w)
	refuse(o.Processes.Apart && w != Bus && w != Particles, "--apart needs --workload bus or particles (got %s): leave it out", w)
	if !o.traits().alike {
		return
	}
	refuse(o.Inflight > 2 && w == Replay, "--inflight %d does not go with --workload replay, where one batch is prepared ahead: use 1 or 2", o.Inflight)
	refuse(o.Inflight != 1 && w != Replay, "--inflight %d does not go with --workload %s, where one follows the other: leave it out", o.Inflight, w)
	refuse(o.Cores.shared(), "--quota and --busy do not go with --workload %s: use echo, pairs or afd", w)
	refuse(o.Van == RDMA, "--van rdma has no limit for --workload %s: use tcp, unix or shm", w)
	if w == Replay {
		refuse(o.Workers != 1, "--workers %d does not go with --workload replay, which has one learner: use --servers for its collectors", o.Workers)
		refuse(o.Push%columnBytes != 0, "--push %v is not a row of --workload replay, whose columns have %v each: use a multiple", o.Push, columnBytes)
		refuse(o.Pull < o.Push, "--pull %v is smaller than a row of --workload replay, which has %v: --pull is the batch, and --push a row", o.Pull, o.Push)
		return
	}
	if w != Refit {
		refuse(o.Workers != 1 || o.Servers != 1, "--workload %s is between two peers: leave --workers and --servers out", w)
		refuse(w == Bus && o.Pull != smallBytes, "--pull %v has no meaning for --workload bus, where tensors move one way: leave it out", o.Pull)
		refuse(o.Processes.Apart && inside, "--apart is about processes: use --van tcp, unix or shm, without --one-process")
		refuse(w == Put && o.Pull != smallBytes, "--pull %v has no meaning for --workload put, whose answer has %v: leave it out", o.Pull, smallBytes)
		return
	}
	refuse(inside, "--workload refit is about processes: use --van tcp, unix or shm, without --one-process")
	refuse(o.Push != smallBytes || o.Pull != smallBytes, "--push and --pull have no meaning for --workload refit: use --bytes")
	for _, mistake := range o.Refit.Check() {
		refuse(true, "%w", mistake)
	}
	refuse(o.Workers != o.Refit.Sources() || o.Servers != o.Refit.Destinations(), "--workers and --servers have no meaning for --workload refit: use --from and --to")
}

// check finds what does not go with a workload, or inside one process.
func (c *Cores) check(w Workload, inside bool, refuse func(mistake bool, format string, args ...any)) {
	refuse(inside && c.Pin != 0, "--pin is for processes: use --van tcp, unix or shm without --one-process, or start this program with taskset")
	refuse(inside && c.shared(), "--quota and --busy are for processes: use --van tcp, unix or shm, without --one-process")
	refuse(c.shared() && (w == Start || w == Incast || w == AFD3), "--quota and --busy do not go with --workload %s, whose limit has all cores: use echo, pairs or afd", w)
	refuse(c.Quota > 0 && c.Quota < leastQuota, "--quota %.4g is too small: the kernel takes %g at least", c.Quota, leastQuota)
}

// checkWork finds options that do not go with programs that do more than exchange.
func checkWork(o *Options, refuse func(mistake bool, format string, args ...any)) {
	flag := "--think"
	if len(o.Work.Think) == 0 {
		flag = "--fresh"
	} else {
		many := o.Workload != Pairs && (o.Workers > 1 || o.Servers > 1)
		refuse(many || o.Inflight > 1, "--think needs one worker, one server and one exchange in flight (got %d, %d, %d): leave out --workers, --servers and --inflight",
			o.Workers, o.Servers, o.Inflight)
		refuse(o.Bulk != 0, "--bulk does not go with --think: leave one of them out")
	}
	refuse(o.Workload != Echo && o.Workload != AFD && o.Workload != Pairs, "%s needs --workload echo, pairs or afd (got %s): leave it out", flag, o.Workload)
	refuse(o.Work.Sleep && len(o.Work.Think) == 0, "--sleep needs --think, which says how long: add it")
	err := o.Work.Check(int64(o.Push), int64(o.Pull))
	refuse(err != nil, "%s with --push %v and --pull %v: %v", flag, o.Push, o.Pull, err)
}

// checkPython finds options that nodes in Python do not have.
func (o *Options) checkPython(refuse func(mistake bool, what, instead string)) {
	peer := o.Nodes.peer()
	var others []string
	for _, w := range Workloads {
		if o.Nodes.run(w) {
			others = append(others, string(w))
		}
	}
	refuse(!o.Nodes.run(o.Workload), fmt.Sprintf("--workload %s", o.Workload), "use "+alternatives(others))
	refuse(o.inOneProcess(), "one process", "use --van tcp, unix or shm, without --one-process")
	refuse(o.Bulk != 0, "--bulk", "leave it out")
	refuse(o.Work.Fresh && o.Inflight > 1, "--fresh with several exchanges in flight", "leave --inflight out")
	refuse(o.Profile != "", "--profile", "use a profiler that knows Python")
	refuse(o.Cores.Busy && len(o.Work.Think) > 0 && !o.Work.Sleep, "--busy with a server that computes", "add --sleep, since its computing is measured only in Go")
	refuse(peer && o.Van == Unix, "--van unix", "use shm, tcp or rdma")
	if o.Workload == Refit {
		return
	}
	refuse(peer && (o.Workers > 1 || o.Servers > 1 || o.Inflight > 1), "more than one worker, server or exchange in flight", "leave out --workers, --servers and --inflight")
	refuse(peer && o.InPlace, "--in-place", "leave it out")
	refuse(peer && o.Progress == progressPark, "--progress park", "use auto or spin: it polls")
}

// alternatives writes words as "a, b or c".
func alternatives(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
