package bench

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
)

// Sizes and time of one layer of Step-3. It has 128 tokens of hidden size 7168, pushed as
// fp8 and pulled as bf16, and three stages of 273 us.
const (
	afdPush     Size = 896 << 10
	afdStage         = 273 * time.Microsecond
	weightsPush Size = 256 << 20
	smallBytes  Size = 8
)

const (
	defaultDuration = 3 * time.Second
	defaultRounds   = 10
	defaultStarts   = 10
	maxNodes        = 1 << 12
	batchInflight   = 64 // batches between two barriers, which take much longer
	maxInflight     = 1 << 15
)

// withDefaults sets what is zero to its default. The error joins every mistake, in the words of the
// flags.
func (o Options) withDefaults() (Options, error) {
	setDefault(&o.Workload, Echo)
	setDefault(&o.Van, TCP)
	setDefault(&o.Progress, progressAuto)
	setDefault(&o.Nodes, GoNodes)
	setDefault(&o.Rounds, defaultRounds)
	o.setNodeDefaults()
	o.setSizeDefaults()
	if o.Count == 0 {
		setDefault(&o.Duration, defaultDuration)
	}
	mistakes := []error{
		oneOf("--workload", o.Workload, Workloads),
		oneOf("--van", o.Van, Vans),
		oneOf("--progress", o.Progress, Progresses),
		oneOf("--nodes", o.Nodes, slices.Concat(AllNodes, Peers)),
		within("--workers", int64(o.Workers), 1, maxNodes),
		within("--servers", int64(o.Servers), 1, maxNodes),
		within("--inflight", int64(o.Inflight), 1, maxInflight),
		within("--rounds", int64(o.Rounds), 1, 1<<20),
		within("--count", int64(o.Count), 0, 1<<40),
		within("--push", int64(o.Push), 1, 1<<40),
		within("--pull", int64(o.Pull), 1, 1<<40),
		within("--bulk", int64(o.Bulk), 0, 1<<40),
		within("--compute", int64(o.Compute), 0, int64(time.Minute)),
		within("--pin", int64(o.Pin), 0, int64(runtime.NumCPU())),
		within("--duration", int64(o.Duration), 0, int64(24*time.Hour)),
		o.checkCombinations(),
	}
	return o, errors.Join(mistakes...)
}

// setNodeDefaults sets the numbers of nodes and of exchanges in flight of the workload.
func (o *Options) setNodeDefaults() {
	switch o.Workload {
	case Incast:
		setDefault(&o.Workers, 8)
	case Batch:
		setDefault(&o.Workers, 8)
		setDefault(&o.Inflight, batchInflight)
	case Fanout:
		setDefault(&o.Servers, 4)
	case AFD3:
		setDefault(&o.Inflight, 3)
		setDefault(&o.Compute, afdStage)
	}
	setDefault(&o.Workers, 1)
	setDefault(&o.Servers, 1)
	setDefault(&o.Inflight, 1)
}

// setSizeDefaults sets the sizes of the workload.
func (o *Options) setSizeDefaults() {
	switch o.Workload {
	case AFD, AFD3:
		setDefault(&o.Push, afdPush)
		setDefault(&o.Pull, 2*o.Push)
	case Weights:
		setDefault(&o.Push, weightsPush)
		setDefault(&o.Pull, smallBytes)
	default:
		setDefault(&o.Push, smallBytes)
		setDefault(&o.Pull, o.Push)
	}
}

// checkCombinations finds options that exclude each other.
func (o *Options) checkCombinations() error {
	return errors.Join(o.checkSizes(), o.checkProcesses(), o.checkWorkload(), o.checkNodes())
}

func (o *Options) checkSizes() error {
	switch {
	case o.echoes() && o.Pull != o.Push:
		return errs.Invalid("--pull %v differs from --push %v: %s answers with what it gets; leave --pull out, or use --workload afd", o.Pull, o.Push, o.Workload)
	case o.Workload == Barrier && o.Push != smallBytes:
		return errs.Invalid("--push %v has no meaning for --workload barrier, which carries no tensors", o.Push)
	case o.Workload != Echo && o.Bulk != 0:
		return errs.Invalid("--bulk needs --workload echo: with lock-step every request waits for all workers")
	}
	return nil
}

func (o *Options) checkProcesses() error {
	switch {
	case o.Workload == Start && o.inOneProcess():
		return errs.Invalid("--workload start is about processes: use --van tcp, unix or shm, without --one-process")
	case o.inOneProcess() && o.Pin != 0:
		return errs.Invalid("--pin is for processes: use --van tcp, unix or shm without --one-process, or start this program with taskset")
	case !o.inOneProcess() && len(o.Node) == 0:
		return errs.Invalid("Options.Node is missing: the command line of the program for each process")
	}
	return nil
}

func (o *Options) checkWorkload() error {
	switch {
	case o.Workload == Start && o.Profile != "":
		return errs.Invalid("--profile has nothing to measure with --workload start: use another")
	case o.Workload == Incast && o.Workers == 1:
		return errs.Invalid("--workers 1 is what --workload incast is compared with: use 2 or more, or --workload echo")
	case o.Workload == Barrier && o.Inflight != 1:
		return errs.Invalid("--inflight %d has no meaning for --workload barrier: one is passed after the other", o.Inflight)
	case o.InPlace && o.Workload != AFD && o.Workload != AFD3:
		return errs.Invalid("--in-place needs --workload afd or afd3: %s has nothing to compute", o.Workload)
	case o.Compute != 0 && o.Workload != AFD3:
		return errs.Invalid("--compute needs --workload afd3")
	}
	return nil
}

// echoes reports whether the answers are the pushed bytes.
func (o *Options) echoes() bool { return echoes(o.Workload) }

func echoes(w Workload) bool { return w != AFD && w != AFD3 && w != Weights }

// setDefault sets a value that is zero.
func setDefault[T comparable](value *T, preset T) {
	var zero T
	if *value == zero {
		*value = preset
	}
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

func within(flag string, value, least, most int64) error {
	if value < least || value > most {
		return errs.Invalid("%s is out of range: %d, must be from %d to %d", flag, value, least, most)
	}
	return nil
}
