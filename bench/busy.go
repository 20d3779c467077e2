package bench

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// busyRun is what a program has done that computes on every core beside the nodes.
type busyRun struct {
	steps   int64
	elapsed time.Duration
}

const (
	// busySteps is how many steps a thread computes between two looks at whether it is to end: some 10 us.
	busySteps = 1 << 13
	// spareProcessors are the processors of Go's that the program leaves to the coordinator. Without them a reply of a
	// node waits up to 10 ms for the next look of Go's monitor.
	spareProcessors = 2
)

// computeDuring computes on every core while f runs. The threads belong to this process, and each keeps its core busy.
func computeDuring(f func()) (r busyRun) {
	threads := runtime.NumCPU()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads + spareProcessors))
	var stop atomic.Bool
	var steps atomic.Int64
	var ended sync.WaitGroup
	began := time.Now()
	for range threads {
		ended.Go(func() { steps.Add(computeUntil(&stop)) })
	}
	f()
	stop.Store(true)
	r.elapsed = time.Since(began)
	ended.Wait()
	r.steps = steps.Load()
	return r
}

// computeUntil returns how many steps it has computed. They use registers alone, so that only the time on a core
// counts.
func computeUntil(stop *atomic.Bool) (steps int64) {
	for x := uint64(1); !stop.Load() && x != 0; steps += busySteps { // x is never 0
		for range busySteps {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
	}
	return steps
}

// rate is in steps per second.
func (r busyRun) rate() float64 { return float64(r.steps) / r.elapsed.Seconds() }

// lost is the share of the rate alone that the program loses beside nodes, apart from what their servers have computed.
func (r busyRun) lost(alone busyRun, computed time.Duration) float64 {
	cores := float64(runtime.NumCPU())
	return 1 - r.rate()/alone.rate() - computed.Seconds()/r.elapsed.Seconds()/cores
}
