package bench

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
)

// Sizes and time of one layer of Step-3: 128 tokens of hidden size 7168, pushed as
// fp8 and pulled as bf16; three stages of 273 us.
const (
	afdPush     Size = 896 << 10
	afdStage         = 273 * time.Microsecond
	weightsPush Size = 256 << 20
	fewBytes    Size = 8
)

const (
	defaultDuration = 3 * time.Second
	defaultRounds   = 10
	defaultStarts   = 10
	mostNodes       = 1 << 12
	batchInflight   = 64 // batches between two barriers, which take much longer
	mostInflight    = 1 << 15
)

// complete fills in defaults. The error joins every mistake, in the words of the flags.
func (o Options) complete() (Options, error) {
	fill(&o.Workload, Echo)
	fill(&o.Van, TCP)
	fill(&o.Progress, progressAuto)
	fill(&o.Nodes, GoNodes)
	fill(&o.Rounds, defaultRounds)
	o.fillNodes()
	o.fillSizes()
	if o.Count == 0 {
		fill(&o.Duration, defaultDuration)
	}
	mistakes := []error{
		oneOf("--workload", o.Workload, Workloads),
		oneOf("--van", o.Van, Vans),
		oneOf("--progress", o.Progress, Progresses),
		oneOf("--nodes", o.Nodes, slices.Concat(AllNodes, Peers)),
		within("--workers", int64(o.Workers), 1, mostNodes),
		within("--servers", int64(o.Servers), 1, mostNodes),
		within("--inflight", int64(o.Inflight), 1, mostInflight),
		within("--rounds", int64(o.Rounds), 1, 1<<20),
		within("--count", int64(o.Count), 0, 1<<40),
		within("--push", int64(o.Push), 1, 1<<40),
		within("--pull", int64(o.Pull), 1, 1<<40),
		within("--bulk", int64(o.Bulk), 0, 1<<40),
		within("--compute", int64(o.Compute), 0, int64(time.Minute)),
		within("--pin", int64(o.Pin), 0, int64(runtime.NumCPU())),
		within("--duration", int64(o.Duration), 0, int64(24*time.Hour)),
		o.contradiction(),
	}
	return o, errors.Join(mistakes...)
}

// fillNodes gives the workload its nodes.
func (o *Options) fillNodes() {
	switch o.Workload {
	case Incast:
		fill(&o.Workers, 8)
	case Batch:
		fill(&o.Workers, 8)
		fill(&o.Inflight, batchInflight)
	case Fanout:
		fill(&o.Servers, 4)
	case AFD3:
		fill(&o.Inflight, 3)
		fill(&o.Compute, afdStage)
	}
	fill(&o.Workers, 1)
	fill(&o.Servers, 1)
	fill(&o.Inflight, 1)
}

// fillSizes gives the workload its sizes.
func (o *Options) fillSizes() {
	switch o.Workload {
	case AFD, AFD3:
		fill(&o.Push, afdPush)
		fill(&o.Pull, 2*o.Push)
	case Weights:
		fill(&o.Push, weightsPush)
		fill(&o.Pull, fewBytes)
	default:
		fill(&o.Push, fewBytes)
		fill(&o.Pull, o.Push)
	}
}

// contradiction finds what does not go together.
func (o *Options) contradiction() error {
	return errors.Join(o.wrongSizes(), o.wrongPlace(), o.wrongWorkload(), o.wrongNodes())
}

func (o *Options) wrongSizes() error {
	switch {
	case o.echoes() && o.Pull != o.Push:
		return errs.Invalid("--pull %v differs from --push %v: %s answers with what it gets; leave --pull out, or use --workload afd", o.Pull, o.Push, o.Workload)
	case o.Workload == Barrier && o.Push != fewBytes:
		return errs.Invalid("--push %v has no meaning for --workload barrier, which carries no tensors", o.Push)
	case o.Workload != Echo && o.Bulk != 0:
		return errs.Invalid("--bulk needs --workload echo: with lock-step every request waits for all workers")
	}
	return nil
}

func (o *Options) wrongPlace() error {
	switch {
	case o.Workload == Start && o.inside():
		return errs.Invalid("--workload start is about processes: use --van tcp, unix or shm, without --one-process")
	case o.inside() && o.Pin != 0:
		return errs.Invalid("--pin is for processes: use --van tcp, unix or shm without --one-process, or start this program with taskset")
	case !o.inside() && len(o.Node) == 0:
		return errs.Invalid("Options.Node is missing: the command line of the program for each process")
	}
	return nil
}

func (o *Options) wrongWorkload() error {
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

// echoes tells whether the answers are what was pushed.
func (o *Options) echoes() bool { return echoes(o.Workload) }

func echoes(w Workload) bool { return w != AFD && w != AFD3 && w != Weights }

// fill sets what is zero.
func fill[T comparable](value *T, preset T) {
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
