package bench

import (
	"io"
	"os"
	"time"

	"github.com/stepvan/stepvan/bench/refit"
	"github.com/stepvan/stepvan/bench/work"
)

// Van is how payload travels in a measurement.
type Van string

// The vans.
const (
	TCP  Van = "tcp"  // TCP over loopback, each node a process
	Unix Van = "unix" // Unix sockets, each node a process
	Shm  Van = "shm"  // shared memory, each node a process
	RDMA Van = "rdma" // RDMA between devices of this machine, each node a process
	Mem  Van = "mem"  // all nodes in this process
)

// Vans lists them all.
var Vans = []Van{TCP, Unix, Shm, RDMA, Mem}

// Values of Options.Progress.
const (
	progressAuto = "auto"
	progressSpin = "spin"
	progressPark = "park"
)

// Progresses lists the values of Options.Progress.
var Progresses = []string{progressAuto, progressSpin, progressPark}

// Options say what to measure. Zero values mean the defaults, which follow the workload. The JSON
// is what a node needs of them.
type Options struct {
	Workload  Workload      `json:"workload"` // echo
	Van       Van           `json:"van"`      // tcp
	Workers   int           `json:"workers"`  // 1; incast and batch 8, pairs 2
	Servers   int           `json:"servers"`  // 1; fanout 4, pairs as Workers. Each gets every push and answers every pull
	Push      Size          `json:"push"`     // bytes that a worker pushes to each server; 8, afd and afd3 896 KiB, weights 256 MiB
	Pull      Size          `json:"pull"`     // bytes that each server answers; as Push, afd and afd3 twice as many, weights 8
	Inflight  int           `json:"inflight"` // exchanges that a worker has going at once; 1, afd3 3, batch 64
	Bulk      Size          `json:"bulk"`     // bytes of another pull that is always in flight; 0: none. Echo only
	InPlace   bool          `json:"in_place"` // the server computes the answer in the worker's memory. Afd only
	Compute   time.Duration `json:"compute"`  // that each side of afd3 computes per micro-batch; 273 us
	Work      work.Spec     `json:"work"`     // what the programs do besides exchanging; nothing. Echo, pairs and afd only
	Progress  string        `json:"progress"` // auto: STEPVAN_PROGRESS of all nodes
	Nodes     Nodes         `json:"nodes"`    // programs of workers and servers; go. Others are compared with go
	Cores     Cores         `json:"cores"`    // what the processes get of the cores; all of them
	Refit     refit.Spec    `json:"refit"`    // what moves from workers to servers; workload refit only
	Processes Processes     `json:"processes"`
	Profile   string        `json:"profile"` // folder that gets a CPU profile of each process; "": none

	Duration time.Duration `json:"-"` // of all rounds, limit included; 3 s
	Count    int           `json:"-"` // exchanges of each worker in all rounds, in place of Duration; starts: how many (10)
	Rounds   int           `json:"-"` // 10

	// Node is the command line of the program that runs Node with the arguments
	// that are added to it. Not needed with all nodes in this process.
	Node   []string `json:"node"`
	Python []string `json:"-"` // command line of the interpreter of nodes in Python, which has package stepvan
	Env    []string `json:"-"` // NAME=value settings for all processes

	Console Console `json:"-"`

	baseline bool // another measurement is compared with it; it has no limit
}

// Console is what a run has of the terminal of its program.
type Console struct {
	Signals <-chan os.Signal // stop the run: see launch.Signals
	Stderr  io.Writer        // of the processes; nil: nowhere
}

// Processes says what shares a process.
type Processes struct {
	Together bool `json:"together"` // all nodes are in this process, as with the mem van
	Apart    bool `json:"apart"`    // clients of bus have processes of their own; the particle of particles lives at the other peer
}

// Cores says what the processes of a measurement get of the cores of the machine.
type Cores struct {
	Pin   int     `json:"-"`    // every process is pinned to this core, which counts from 1; 0: none
	Quota float64 `json:"-"`    // cores whose time all processes share, by a control group; 0: no limit
	Busy  bool    `json:"busy"` // another program computes on every core, and the nodes take time from it
}

// shared reports whether the nodes do not have the cores for themselves. Bare processes that poll would say nothing.
func (c *Cores) shared() bool { return c.Quota > 0 || c.Busy }

// inOneProcess reports whether all nodes are in this process.
func (o *Options) inOneProcess() bool { return o.Van == Mem || o.Processes.Together }
