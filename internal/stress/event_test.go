package stress

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
)

// kind says what an event is about.
type kind string

const (
	evPort     kind = "port"     // a scheduler listens; Count is the port
	evStarted  kind = "started"  // the node is part of the cluster
	evMark     kind = "mark"     // a lane has reached a mark
	evRan      kind = "ran"      // the exchanges that were asked for are done
	evLost     kind = "lost"     // an operation failed with the loss of a peer
	evRefused  kind = "refused"  // so did the next one
	evFreed    kind = "freed"    // what a lost server could reach is free again
	evDead     kind = "dead"     // OnDead was called
	evSample   kind = "sample"   // Vitals
	evStopping kind = "stopping" // the node is about to stop
	evLog      kind = "log"      // a line of the node's log
	evLaunched kind = "launched" // launch has started a process; Count is its pid
	evEnded    kind = "ended"    // the program has ended, and left Leaks behind
	evBegun    kind = "begun"    // a damaged cluster begins; Seed is its
	evJudged   kind = "judged"   // it is over, with Outcome
	evGivenUp  kind = "given up" // a peer has learned that the others have given it up
	evWrong    kind = "wrong"    // what must never happen
)

// event is a line that a program writes.
type event struct {
	Kind   kind
	At     int64    // ns of CLOCK_MONOTONIC
	PID    int      // of the process that reports it
	Text   string   // an error, a name
	Lane   int      // of a worker: the server's rank, or allServers
	Bytes  int64    // payload of the exchange that was lost; of evRan, of all exchanges of the lane
	Count  int      // exchanges of the lane so far
	Last   int64    // of evLost: when the lane's last exchange was done
	Vitals *vitals  // of evSample
	Leaks  []string // of evEnded

	Seed    uint64   // of evBegun and evJudged
	Outcome *outcome // of evJudged
}

// sink takes events; concurrent.
type sink func(event)

// clock is CLOCK_MONOTONIC in ns, the same for all processes.
func clock() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // never fails with this clock
	return ts.Nano()
}

// writer makes a sink that writes lines.
func writer(w io.Writer) sink {
	var mu sync.Mutex
	enc := json.NewEncoder(w)
	return func(e event) {
		mu.Lock()
		defer mu.Unlock()
		if e.At == 0 {
			e.At = clock()
		}
		e.PID = os.Getpid()
		_ = enc.Encode(e) // the reader may have been killed
	}
}

// journal makes events of log lines, with what they say of counters.
type journal struct{ report sink }

func (j journal) Write(line []byte) (int, error) {
	var l struct{ Message, Counters, Ports string }
	if json.Unmarshal(line, &l) == nil {
		j.report(event{Kind: evLog, Text: strings.TrimSpace(l.Message + " " + l.Counters + " " + l.Ports)})
	}
	return len(line), nil
}

// order says what a command is about.
type order string

const (
	doRun      order = "run"    // Count further exchanges on each lane that lives
	doFinish   order = "finish" // Count further ones from where the lane is, whatever was asked before
	doMark     order = "mark"   // report when the lane is Count exchanges further
	doLarge    order = "large"  // exchange large payload from here on
	doSample   order = "sample" // report the vitals
	doStop     order = "stop"
	doPhase    order = "phase"     // do what Text says until that fails
	doRefit    order = "refit"     // make Plans plans among Ranks, with Count runs each
	doMesh     order = "mesh"      // connect with all other peers
	doBusy     order = "busy"      // compute, and run a plan, for Count milliseconds
	doAwaitEnd order = "await end" // report when the node can work no more
	doCycle    order = "cycle"     // live a life, with Count exchanges or as a worker of the scheduler at Port
)

// command is a line that a program reads.
type command struct {
	Do    order
	Lane  int
	Count int
	Port  int
	Text  string
	Plans int
	Ranks []stepvan.Rank
}

// commands reads lines until the end of the input, which is the end of the parent.
func commands(r io.Reader) <-chan command {
	out := make(chan command)
	go func() {
		defer close(out)
		for d := json.NewDecoder(r); ; {
			var c command
			if d.Decode(&c) != nil {
				return
			}
			out <- c
		}
	}()
	return out
}

// seconds of a difference of clocks.
func since(at int64, from int64) time.Duration { return time.Duration(at - from) }
