package progress

import (
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// crew is what the engines of this process know about its cores together: they share them.
var crew team

type team struct {
	busy     atomic.Int32 // waiters that keep a processor of Go's: they spin or nap
	cores    atomic.Int32 // processors of Go's
	pressure atomic.Int32 // how badly spinning went lately: 0 to mostPressure
	crowded  atomic.Bool  // goroutines of the program wait for a processor

	looked  atomic.Int64 // when crowded was determined
	looking sync.Mutex
	calm    int // looks in a row that saw no crowd; guarded by looking
	sample  [1]metrics.Sample
}

const (
	mostPressure = 64
	// heavyPressure is that from which waiters sleep at once.
	heavyPressure = 32
	// lookEvery is how long a look at the goroutines holds good, crowd how many that wait for a
	// processor, at least, are more than one node makes by itself.
	lookEvery = int64(time.Millisecond)
	crowd     = 6
	// calmLooks is how many looks in a row must see no crowd until there is none.
	calmLooks = 8
	// retry is how many waits under heavy pressure there are to one that spins all the same.
	retry = 32
	// What a wait that ended well takes from the pressure, and what one does that had lost its core or
	// kept the other side from its own. Their ratio is about that of what spinning gains
	// and loses; one under heavy pressure speaks for those that did not try.
	gain, gainHeavy, loss = 1, 16, 8
	// lateAfter is how long a look at the source takes at most, unless the core was given to somebody else.
	lateAfter = int64(150 * time.Microsecond)
)

// count looks how many processors Go uses, which follow the quota of the cgroup.
func (t *team) count() { t.cores.Store(int32(runtime.GOMAXPROCS(0))) }

// look finds out, at most every so often, whether goroutines wait for a processor. Waiters leave
// theirs to them: many nodes of one process would keep each other from working.
func (t *team) look(now int64) {
	if now-t.looked.Load() < lookEvery || !t.looking.TryLock() {
		return
	}
	defer t.looking.Unlock()
	t.looked.Store(now)
	t.sample[0].Name = "/sched/goroutines/runnable:goroutines"
	metrics.Read(t.sample[:]) // some 300 ns, no allocation
	if v := t.sample[0].Value; v.Kind() == metrics.KindUint64 {
		t.judge(v.Uint64() >= max(crowd, uint64(t.cores.Load())))
	}
}

// judge has a crowd forgotten only after some looks in a row that saw none: with some hundred nodes in
// a process the number that wait for a processor goes up and down. looking is held.
func (t *team) judge(crowd bool) {
	if t.calm++; crowd {
		t.calm = 0
	}
	t.crowded.Store(crowd || t.crowded.Load() && t.calm < calmLooks)
}

// enlist reports whether one more waiter may keep a processor: one is left to the rest of the
// program. The first few may do so whatever there is.
func (t *team) enlist(first int32) bool {
	if t.busy.Add(1) <= max(first, t.cores.Load()-1) {
		return true
	}
	t.busy.Add(-1)
	return false
}

func (t *team) discharge() { t.busy.Add(-1) }

// press notes that a spinning waiter lost its core for so long.
func (t *team) press(lost int64) {
	n := int32(loss)
	if lost > int64(10*time.Millisecond) {
		n = heavyPressure
	}
	t.pressure.Store(min(mostPressure, t.pressure.Load()+n))
}

// heavy reports whether spinning does more harm than good.
func (t *team) heavy() bool { return t.pressure.Load() >= heavyPressure }

// ease notes a wait that ended well.
func (t *team) ease() {
	switch p := t.pressure.Load(); {
	case p >= heavyPressure:
		t.pressure.Store(p - gainHeavy)
	case p > 0:
		t.pressure.Store(p - gain)
	}
}

// budget is what one waiter may spend.
type budget struct {
	spin, yield int64 // ns
	alone       bool  // there is one processor: other goroutines run when this one lets them
	lost        int64 // longest time without the core
}

// budgets are those of an undisturbed waiter.
func budgets(o Options) (spin, yield int64) {
	crew.count()
	spin, yield = int64(o.Spin), int64(o.Yield)
	if spin == 0 {
		spin = int64(defaultSpin)
	}
	if yield == 0 {
		yield = int64(defaultYield)
	}
	if runtime.NumCPU() == 1 || o.Cores > 0 && o.Cores < 1.5 {
		spin = 0 // the other side cannot run while this one spins
	}
	return spin, yield
}

// budget is what a wait may spend that begins at this moment.
func (e *Engine) budget() budget {
	b := budget{spin: e.spin, yield: e.yield, alone: crew.cores.Load() == 1}
	if e.mode == Spin {
		b.yield = math.MaxInt64
	}
	return b
}

// gap notes how long a round without events took.
func (b *budget) gap(d int64) {
	if d > lateAfter {
		b.lost = max(b.lost, d)
	}
}

// lasts reports whether to poll on after so long without events, and gives the core to other threads when it is time to.
func (b *budget) lasts(idle int64, rounds int) bool {
	if idle < b.spin && rounds < mostRounds {
		return true
	}
	if b.yield != math.MaxInt64 && (idle >= b.spin+b.yield || rounds >= 2*mostRounds) {
		return false
	}
	schedYield()
	return true
}

// tell has the next waits profit from what became of this one.
func (b *budget) tell(done bool) {
	switch {
	case b.lost > 0:
		crew.press(b.lost)
	case done:
		crew.ease()
	}
}
