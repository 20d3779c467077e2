package progress

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// cpus is what the engines of this process know about its processors, which they share.
var cpus processors

type processors struct {
	busy           atomic.Int32 // waiters that keep a processor of Go's: they spin or sleep in the kernel
	count          atomic.Int32 // processors of Go's
	pressure       atomic.Int32 // how badly spinning went lately: 0 to mostPressure
	oversubscribed atomic.Bool  // many goroutines of the program wait for a processor
	queued         atomic.Int32 // samples in a row in which at least one goroutine waited for a processor

	quota quota

	sampledAt   atomic.Int64 // when oversubscribed was determined
	sampling    sync.Mutex
	calmSamples int // samples in a row without waiting goroutines; guarded by sampling
	runnable    [1]metrics.Sample
}

const (
	mostPressure = 64
	// contendedPressure is the pressure from which waiters sleep at once.
	contendedPressure = 32
	// sampleEvery is how long a sample of the runnable goroutines is valid.
	sampleEvery = int64(time.Millisecond)
	// minRunnable is how many goroutines must at least wait for a processor before the process counts as
	// oversubscribed. One transport alone causes fewer.
	minRunnable = 6
	// wantedAfter is how many samples in a row must see a waiting goroutine before waiters leave their processor to it.
	wantedAfter = 2
	// calmAfter is how many samples in a row must see no waiting goroutines before the process counts as calm.
	calmAfter = 8
	// retryEvery: of so many waits under contention, one spins all the same.
	retryEvery = 32
	// A wait that ended well takes gain from the pressure. A wait that lost its core, or kept the other side from its
	// own, adds loss. The ratio of gain and loss is about that of what spinning gains and loses. A wait that spins
	// under contention counts for those that did not try, and takes gainContended.
	gain, gainContended, loss, gaveWayLoss = 1, 16, 8, 2
	// lateAfter is the longest time that a poll of the source takes while the waiter keeps its core.
	lateAfter = int64(150 * time.Microsecond)
)

// countProcessors reads how many processors Go uses, which follows the quota of the cgroup.
func (p *processors) countProcessors() { p.count.Store(int32(runtime.GOMAXPROCS(0))) }

// sample finds out, at most every sampleEvery, whether goroutines wait for a processor. Waiters leave theirs to them:
// many transports of one process would otherwise keep each other from working.
func (p *processors) sample(now int64) {
	if now-p.sampledAt.Load() < sampleEvery || !p.sampling.TryLock() {
		return
	}
	defer p.sampling.Unlock()
	p.sampledAt.Store(now)
	p.runnable[0].Name = "/sched/goroutines/runnable:goroutines"
	metrics.Read(p.runnable[:]) // some 300 ns, no allocation
	if v := p.runnable[0].Value; v.Kind() == metrics.KindUint64 {
		p.noteSample(v.Uint64() >= max(minRunnable, uint64(p.count.Load())))
		if v.Uint64() == 0 {
			p.queued.Store(0)
		} else {
			p.queued.Store(min(p.queued.Load()+1, wantedAfter))
		}
	}
}

// wanted reports whether goroutines of the program wait for the processor of a waiter. One that waited in a single
// sample may have been woken just before.
func (p *processors) wanted() bool { return p.queued.Load() >= wantedAfter }

// noteSample ends the state oversubscribed only after some calm samples in a row. With some hundred transports in a
// process, the number of waiting goroutines rises and falls. The caller holds sampling.
func (p *processors) noteSample(waiting bool) {
	if p.calmSamples++; waiting {
		p.calmSamples = 0
	}
	p.oversubscribed.Store(waiting || p.oversubscribed.Load() && p.calmSamples < calmAfter)
}

// acquire reports whether another waiter may keep a processor. It leaves one processor of Go's to the program, except
// that the first least waiters always succeed. release ends it.
func (p *processors) acquire(least int32) bool {
	if p.busy.Add(1) <= max(least, p.count.Load()-1) {
		return true
	}
	p.busy.Add(-1)
	return false
}

func (p *processors) release() { p.busy.Add(-1) }

// penalize notes that a spinning waiter lost its core for so long, in ns.
func (p *processors) penalize(lost int64) {
	n := int32(loss)
	if lost > int64(10*time.Millisecond) {
		n = contendedPressure
	}
	p.pressure.Store(min(mostPressure, p.pressure.Load()+n))
}

// giveWay notes that the event of a wait came while another thread ran in place of the waiter. It may have been the
// thread of the peer, whose core the waiter took.
func (p *processors) giveWay() { p.pressure.Store(min(mostPressure, p.pressure.Load()+gaveWayLoss)) }

// contended reports whether spinning does more harm than good.
func (p *processors) contended() bool { return p.pressure.Load() >= contendedPressure }

// reward notes a wait that ended well.
func (p *processors) reward() {
	switch n := p.pressure.Load(); {
	case n >= contendedPressure:
		p.pressure.Store(n - gainContended)
	case n > 0:
		p.pressure.Store(n - gain)
	}
}
