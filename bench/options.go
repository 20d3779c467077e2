package bench

import (
	"io"
	"os"
	"time"
)

// Workload is what is measured.
type Workload string

// The workloads.
const (
	Echo    Workload = "echo"    // a server sends back what it gets
	AFD     Workload = "afd"     // a server answers with a buffer of its own, to all workers at once
	AFD3    Workload = "afd3"    // afd between computations on both sides, several micro-batches in flight
	Incast  Workload = "incast"  // many workers, one server: the cost of a request, compared with one worker
	Fanout  Workload = "fanout"  // one worker, many servers
	Weights Workload = "weights" // large tensors one way, a few bytes back
	Barrier Workload = "barrier" // all workers and servers wait for each other
	Batch   Workload = "batch"   // a server takes and answers a batch that has arrived
	Start   Workload = "start"   // processes start, exchange once and stop
)

// Workloads lists them all.
var Workloads = []Workload{Echo, AFD, AFD3, Incast, Fanout, Weights, Barrier, Batch, Start}

// Van is how payload travels in a measurement.
type Van string

// The vans.
const (
	TCP  Van = "tcp"  // TCP over loopback, each node a process
	Unix Van = "unix" // Unix sockets, each node a process
	Shm  Van = "shm"  // shared memory, each node a process
	Mem  Van = "mem"  // all nodes in this process
)

// Vans lists them all.
var Vans = []Van{TCP, Unix, Shm, Mem}

// Values of Options.Progress.
const (
	progressAuto = "auto"
	progressSpin = "spin"
	progressPark = "park"
)

// Progresses lists the values of Options.Progress.
var Progresses = []string{progressAuto, progressSpin, progressPark}

// Options say what to measure. Zero values mean the defaults, which follow the workload.
type Options struct {
	Workload Workload      // echo
	Van      Van           // tcp
	Workers  int           // 1; incast and batch 8
	Servers  int           // 1; fanout 4. Each gets every push and answers every pull
	Push     Size          // bytes that a worker pushes to each server; 8, afd and afd3 896 KiB, weights 256 MiB
	Pull     Size          // bytes that each server answers; as Push, afd and afd3 twice as many, weights 8
	Inflight int           // exchanges that a worker has going at once; 1, afd3 3, batch 64
	Bulk     Size          // bytes of another pull that is always in flight; 0: none. Echo only
	InPlace  bool          // the server computes the answer in the worker's memory. Afd only
	Compute  time.Duration // that each side of afd3 computes per micro-batch; 273 us
	Progress string        // auto: STEPVAN_PROGRESS of all nodes
	Nodes    Nodes         // programs of workers and servers; go. Others are compared with go
	Together bool          // all nodes in this process, as with the mem van

	Duration time.Duration // of all rounds, limit included; 3 s
	Count    int           // exchanges of each worker in all rounds, in place of Duration; starts: how many (10)
	Rounds   int           // 10
	Pin      int           // every process is pinned to this core, which counts from 1; 0: none
	Profile  string        // folder that gets a CPU profile of each process; "": none

	// Node is the command line of the program that runs Node with the arguments
	// that are added to it. Not needed with all nodes in this process.
	Node   []string
	Python []string // command line of the interpreter of nodes in Python, which has package stepvan
	Env    []string // NAME=value settings for all processes

	Signals <-chan os.Signal // stop the run: see launch.Signals
	Stderr  io.Writer        // of the processes; nil: nowhere

	baseline bool // another measurement is compared with it; it has no limit
}

// inOneProcess reports whether all nodes are in this process.
func (o *Options) inOneProcess() bool { return o.Van == Mem || o.Together }
