package progress

import (
	"math"
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
}

func newPolicy(o Options, threaded bool) policy {
	p := policy{mode: o.Mode, threaded: threaded, spin: int64(o.Spin), yield: int64(o.Yield)}
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
	spin, yield  int64 // ns
	oneProcessor bool  // other goroutines run only when this one lets them
	lost         int64 // longest time without the core
}

// budget is what a wait may spend that begins at this moment.
func (p *policy) budget() budget {
	b := budget{spin: p.spin, yield: p.yield, oneProcessor: cpus.count.Load() == 1}
	if p.mode == Spin {
		b.yield = math.MaxInt64
	}
	return b
}

// noteRound notes how long a round without events took.
func (b *budget) noteRound(d int64) {
	if d > lateAfter {
		b.lost = max(b.lost, d)
	}
}

// spinOrYield reports whether to poll again after so long without events. When the time for spinning is over, it first
// yields the core to other threads.
func (b *budget) spinOrYield(idle int64, rounds int) bool {
	if idle < b.spin && rounds < mostRounds {
		return true
	}
	if b.yield != math.MaxInt64 && (idle >= b.spin+b.yield || rounds >= 2*mostRounds) {
		return false
	}
	sys.Yield()
	return true
}

// report tells later waits how this one went.
func (b *budget) report(done bool) {
	switch {
	case b.lost > 0:
		cpus.penalize(b.lost)
	case done:
		cpus.reward()
	}
}
