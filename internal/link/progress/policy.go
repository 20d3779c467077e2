package progress

import (
	"runtime"
	"time"

	"github.com/stepvan/stepvan/internal/sys"
)

const (
	defaultSpin  = 30 * time.Microsecond
	defaultYield = 60 * time.Microsecond

	// mostRounds bounds a phase by count as well, for clocks that stand still (testing/synctest).
	mostRounds = 2_500
)

// policy is how the waiters of an engine wait.
type policy struct {
	mode        Mode
	threaded    bool  // a sleeping waiter occupies a thread, and for a while a processor of Go's
	contended   uint8 // waits under contention, counted to find the one that spins; holder of the token only
	spin, yield int64 // of a waiter that nobody disturbs, ns
	late        int64 // how late sleeps with a limit end, ns; holder of the token
}

func newPolicy(o Options, threaded bool) policy {
	p := policy{mode: o.Mode, threaded: threaded, spin: int64(o.Spin), yield: int64(o.Yield), late: firstLate}
	cpus.countProcessors()
	if p.spin == 0 {
		p.spin = int64(defaultSpin)
	}
	if p.yield == 0 {
		p.yield = int64(defaultYield)
	}
	if runtime.NumCPU() == 1 || o.Cores > 0 && o.Cores < 1.5 {
		p.spin = 0 // the other side cannot run while this one spins
	}
	return p
}

// spins reports whether the wait that begins spins before it sleeps.
func (p *policy) spins() bool {
	switch {
	case p.mode != Auto || !p.threaded:
		return p.mode == Spin
	case cpus.oversubscribed.Load():
		cpus.sample(nanotime())
		return false
	case !cpus.contended():
		return true
	}
	p.contended++
	return p.contended%retryEvery == 0
}

// budget is what one wait may spend.
type budget struct {
	spin, yield  int64    // ns
	history      *history // tells how long to poll; nil: spin and yield are all that the wait may spend
	endless      bool     // the wait never sleeps
	oneProcessor bool     // other goroutines run only when this one lets them
	lost         int64    // longest time without the core
	pollUntil    int64    // polling is worth it until then, by nanotime
	yielded      int64    // the last yield, by nanotime; 0: none yet
	preemptions  int64    // of the waiter's thread at the last look
	shared       int      // yields in a row in which another thread ran
	gaveWay      bool     // another thread ran in the last yield, and the waiter has not polled in vain since
}

const (
	// yieldEvery is how often a waiter that polls for long yields its core to other threads.
	yieldEvery = int64(10 * time.Microsecond)
	// freeYield is the longest time that sched_yield(2) takes when no other thread wants the core.
	freeYield = int64(5 * time.Microsecond)
	// mostShared is how many yields in a row may let another thread run before the core counts as not free.
	mostShared = 3
)

// budget is what a wait may spend that begins at this moment. h is the history of its kind.
func (p *policy) budget(h *history) budget {
	if !p.pollsLong() {
		h = nil
	}
	return budget{spin: p.spin, yield: p.yield, history: h, endless: p.mode == Spin, oneProcessor: cpus.count.Load() == 1}
}

// noteRound notes how long a round without events took. A long one has lost the core to another thread if the kernel
// has counted that. Otherwise the whole machine stood still, as virtual machines do, and polling is as good as before.
// Before the first yield the waiter does not ask the kernel.
func (b *budget) noteRound(d int64) {
	b.gaveWay = false
	if d > lateAfter && b.yielded != 0 && b.preempted() {
		b.lost = max(b.lost, d)
	}
}

// preempted reports whether another thread may have run in place of the waiter since the last look. Where the kernel
// has counted nothing, it may not count at all, and only time tells. Budget: one system call.
func (b *budget) preempted() bool {
	before := b.preemptions
	b.preemptions = sys.Preemptions()
	return b.preemptions != before || b.preemptions == 0
}

// learns reports whether waiters use the history of their kind.
func (p *policy) learns() bool { return p.mode != Spin && p.threaded }

// pollsLong reports whether waiters poll as long as the history suggests.
func (p *policy) pollsLong() bool { return p.mode == Auto && p.threaded && p.spin > 0 }

// spinOrYield reports whether to poll again after so long without events. When the time for spinning is over, it first
// yields the core to other threads.
func (b *budget) spinOrYield(idle int64, rounds int) bool {
	if idle < b.spin && rounds < mostRounds {
		return true
	}
	if idle >= b.spin+b.yield || rounds >= 2*mostRounds {
		return false
	}
	sys.Yield()
	return true
}

// yieldAtTimes yields the core to other threads every yieldEvery. It reports whether the core is free: sched_yield(2)
// returns at once as long as no other thread wants to run there.
func (b *budget) yieldAtTimes(now int64) (free bool) {
	if now-b.yielded < yieldEvery {
		return true
	}
	sys.Yield()
	b.yielded = nanotime()
	if b.yielded-now <= freeYield || !b.preempted() {
		b.shared = 0
		return true
	}
	b.shared++
	b.gaveWay = true
	if d := b.yielded - now; d > lateAfter {
		b.lost = max(b.lost, d)
	}
	return b.shared < mostShared
}

// report tells later waits how this one went.
func (b *budget) report(done bool) {
	switch {
	case b.lost > 0:
		cpus.penalize(b.lost)
	case b.shared >= mostShared:
		cpus.penalize(0)
	case done && b.gaveWay:
		cpus.giveWay()
	case done:
		cpus.reward()
	}
}
