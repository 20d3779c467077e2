package bench

import (
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
)

// Workload is what is measured.
type Workload string

// The workloads.
const (
	Echo  Workload = "echo"  // a server sends back what it gets
	AFD   Workload = "afd"   // a server answers with a buffer of its own, to all workers together
	Start Workload = "start" // processes start, exchange once and stop
)

// Workloads lists them all.
var Workloads = []Workload{Echo, AFD, Start}

// Van is how payload travels in a measurement.
type Van string

// The vans.
const (
	TCP  Van = "tcp"  // TCP over loopback, each node a process
	Unix Van = "unix" // Unix sockets, each node a process
	Mem  Van = "mem"  // all nodes in this process
)

// Vans lists them all.
var Vans = []Van{TCP, Unix, Mem}

// Progresses lists the values of Options.Progress.
var Progresses = []string{"auto", "spin", "park"}

// Sizes of one layer's activations in Step-3: 128 tokens of hidden size 7168, pushed as
// fp8 and pulled as bf16.
const (
	afdPush Size = 896 << 10
	afdPull Size = 2 * afdPush
)

const (
	defaultDuration = 3 * time.Second
	defaultRounds   = 10
	defaultStarts   = 10
	mostNodes       = 1 << 12
	mostInflight    = 1 << 15
)

// Options say what to measure. Zero values mean the defaults.
type Options struct {
	Workload Workload // echo
	Van      Van      // tcp
	Workers  int      // 1
	Servers  int      // 1; each gets every push and answers every pull
	Push     Size     // bytes that a worker pushes to each server; echo 8, afd 896 KiB
	Pull     Size     // bytes that each server answers; echo: as Push, afd 1.75 MiB
	Inflight int      // exchanges that a worker has going at once; 1
	Bulk     Size     // bytes of a further pull that is in flight all the time; 0: none. Not with afd.
	Progress string   // auto: STEPVAN_PROGRESS of all nodes

	Duration time.Duration // of all rounds, limit included; 3 s
	Count    int           // exchanges of each worker in all rounds, in place of Duration; starts: how many (10)
	Rounds   int           // 10
	Pin      int           // every process is pinned to this core, which counts from 1; 0: none
	Profile  string        // folder that gets a CPU profile of each process; "": none

	// Node is the command line of the program that runs Node with the arguments
	// that are added to it. Not needed with the mem van.
	Node []string
	Env  []string // NAME=value settings for all processes

	Signals <-chan os.Signal // stop the run: see launch.Signals
	Stderr  io.Writer        // of the processes; nil: nowhere
}

// complete fills in defaults. The error joins every mistake, in the words of the flags.
func (o Options) complete() (Options, error) {
	fill(&o.Workload, Echo)
	fill(&o.Van, TCP)
	fill(&o.Progress, Progresses[0])
	fill(&o.Workers, 1)
	fill(&o.Servers, 1)
	fill(&o.Inflight, 1)
	fill(&o.Rounds, defaultRounds)
	o.fillSizes()
	if o.Count == 0 {
		fill(&o.Duration, defaultDuration)
	}
	mistakes := []error{
		oneOf("--workload", o.Workload, Workloads),
		oneOf("--van", o.Van, Vans),
		oneOf("--progress", o.Progress, Progresses),
		within("--workers", int64(o.Workers), 1, mostNodes),
		within("--servers", int64(o.Servers), 1, mostNodes),
		within("--inflight", int64(o.Inflight), 1, mostInflight),
		within("--rounds", int64(o.Rounds), 1, 1<<20),
		within("--count", int64(o.Count), 0, 1<<40),
		within("--push", int64(o.Push), 1, 1<<40),
		within("--pull", int64(o.Pull), 1, 1<<40),
		within("--bulk", int64(o.Bulk), 0, 1<<40),
		within("--pin", int64(o.Pin), 0, int64(runtime.NumCPU())),
		within("--duration", int64(o.Duration), 0, int64(24*time.Hour)),
		o.contradiction(),
	}
	return o, errors.Join(mistakes...)
}

// fillSizes gives the workload its sizes.
func (o *Options) fillSizes() {
	switch o.Workload {
	case AFD:
		fill(&o.Push, afdPush)
		fill(&o.Pull, afdPull)
	default:
		fill(&o.Push, 8)
		fill(&o.Pull, o.Push)
	}
}

// contradiction finds what does not go together.
func (o *Options) contradiction() error {
	switch {
	case o.Workload != AFD && o.Pull != o.Push:
		return errs.Invalid("--pull %v differs from --push %v: %s answers with what it gets; leave --pull out, or use --workload afd", o.Pull, o.Push, o.Workload)
	case o.Workload != Echo && o.Bulk != 0:
		return errs.Invalid("--bulk needs --workload echo: with lock-step every request waits for all workers")
	case o.Workload == Start && o.Van == Mem:
		return errs.Invalid("--workload start is about processes: use --van tcp or unix")
	case o.Workload == Start && o.Profile != "":
		return errs.Invalid("--profile has nothing to measure with --workload start: use echo or afd")
	case o.Van == Mem && o.Pin != 0:
		return errs.Invalid("--pin is for processes: use --van tcp or unix, or start this program with taskset")
	case o.Van != Mem && len(o.Node) == 0:
		return errs.Invalid("Options.Node is missing: the command line of the program for each process")
	}
	return nil
}

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
