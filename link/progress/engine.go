package progress

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Source is what an engine drives. All methods but FDs are called by the holder of the token.
type Source interface {
	// Poll moves everything that can move without blocking and returns how many
	// things happened. With all == false it may look only at what was active lately.
	Poll(all bool) int
	// Flush sends what was held back to ride on later messages. With idle == true
	// nobody will poll for long, so everything goes; else only what is overdue.
	Flush(idle bool)
	// Arm is called before the holder of the token sleeps, right after Poll(true) has
	// returned 0. true: there is nothing, and whatever comes before the next Poll makes one of FDs
	// readable or calls Engine.Wake. false: poll again.
	Arm() bool
	// FDs returns descriptors that become readable when something comes while the source is
	// armed. Sources that have none call Engine.Wake instead.
	FDs() []int
}

// Mode is a policy of waiting.
type Mode uint8

// Modes.
const (
	Auto Mode = iota // spin, yield, park; budgets follow the cores
	Spin             // never park: lowest latency, a core per waiter
	Park             // park at once: no CPU while waiting
)

// Options tune an engine.
type Options struct {
	Mode  Mode
	Spin  time.Duration // how long a waiter spins; 0 for the default
	Yield time.Duration // how long it yields after that; 0 for the default
}

const (
	defaultSpin  = 30 * time.Microsecond
	defaultYield = 500 * time.Microsecond
	benchTick    = time.Millisecond
	// longAway is the absence from the node from which the driver is called at once.
	longAway = int64(40 * time.Microsecond)
	// passesPerTick bounds a phase by count as well, for clocks that stand still (testing/synctest).
	maxPasses = 20_000
)

// states of the background driver
const (
	driverKernel = iota // in, or on its way into, the kernel's queue
	driverBench         // watching a spinning waiter
)

// Engine moves the bytes of one node. All exported methods may be called from any goroutine.
type Engine struct {
	src    Source
	parker parker
	spin   time.Duration
	yield  time.Duration
	mode   Mode

	held     atomic.Bool  // the token
	driver   atomic.Int32 // state of the background driver
	activity atomic.Uint64
	left     atomic.Int64 // when the program last left the node, ns
	absent   atomic.Bool  // it was away for long since the last wait
	away     atomic.Bool  // it was before the last wait
	stuck    atomic.Bool  // output waits for room, so the driver must not stay on the bench
	closed   atomic.Bool

	mu      sync.Mutex
	waiters waiterList
	free    *waiter // recycled waiters, linked by next

	timers  timerList
	rouse   chan struct{}
	stopped chan struct{}
}

// NewEngine starts an engine with its background driver. Close ends it.
func NewEngine(src Source, o Options) (*Engine, error) {
	e := &Engine{
		src: src, mode: o.Mode, spin: o.Spin, yield: o.Yield,
		rouse: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	if e.spin == 0 {
		e.spin = defaultSpin
	}
	if e.yield == 0 {
		e.yield = defaultYield
	}
	if runtime.NumCPU() == 1 {
		e.spin = 0 // the other side cannot run while this one spins
	}
	p, err := newParker(src.FDs())
	if err != nil {
		return nil, err
	}
	e.parker = p
	go e.drive()
	return e, nil
}

// Set makes ev happen and wakes everybody who waits for it.
func (e *Engine) Set(ev *Event) {
	if ev.state.Or(eventSet)&eventAwaited != 0 {
		e.wakeFor(ev)
	}
}

func (e *Engine) wakeFor(ev *Event) {
	e.mu.Lock()
	for w := e.waiters.head; w != nil; {
		next := w.next
		if ev == nil || w.ev == ev {
			e.waiters.remove(w)
			w.wake <- struct{}{}
		}
		w = next
	}
	e.mu.Unlock()
}

// Wake is for sources without descriptors: Poll would find something.
func (e *Engine) Wake() {
	if e.driver.Load() == driverKernel {
		e.parker.wake()
	}
}

// Nudge asks for progress soon although nobody may be waiting: output is stuck
// for want of room. The mark stays until Settle.
func (e *Engine) Nudge() {
	e.stuck.Store(true)
	if !e.held.Load() {
		e.callDriver()
	}
}

// Kick has the source polled soon, whoever drives.
func (e *Engine) Kick() {
	if e.driver.Load() == driverKernel {
		e.parker.wake()
		return
	}
	e.callDriver()
}

// Settle ends the effect of Nudge: nothing is stuck any more.
func (e *Engine) Settle() {
	if e.stuck.Load() {
		e.stuck.Store(false)
	}
}

// Close ends the driver, wakes all waiters with errs.ErrClosed and keeps the
// token for the caller, who alone may poll the source from then on.
func (e *Engine) Close() {
	if e.closed.Swap(true) {
		<-e.stopped
		return
	}
	e.parker.wake()
	e.callDriver()
	<-e.stopped
	for !e.held.CompareAndSwap(false, true) {
		e.wakeFor(nil)
		runtime.Gosched()
	}
	e.wakeFor(nil)
	e.parker.close()
}

// acquire takes the token for a waiter.
func (e *Engine) acquire() bool {
	if e.held.Load() || !e.held.CompareAndSwap(false, true) {
		return false
	}
	if e.closed.Load() {
		e.held.Store(false)
		return false
	}
	e.activity.Add(1)
	return true
}

// release gives the token back: to a parked waiter that can use it, else to nobody.
func (e *Engine) release() {
	e.mu.Lock()
	if w := e.waiters.firstFresh(); w != nil && !e.closed.Load() {
		e.waiters.remove(w)
		w.granted = true
		w.wake <- struct{}{}
		e.mu.Unlock()
		return
	}
	parked := e.waiters.head != nil
	e.held.Store(false)
	e.mu.Unlock()
	if parked || e.stuck.Load() || e.away.Load() {
		e.callDriver()
	}
}

// benchDriver takes the driver out of the kernel's queue when a waiter begins to
// drive: there it would be woken, or nearly, for each thing that the waiter
// handles, and could not see that something held back has become due.
func (e *Engine) benchDriver() {
	if e.driver.Load() == driverKernel {
		e.parker.wake()
	}
}

// callDriver fetches the driver from its bench, if it sits there.
func (e *Engine) callDriver() {
	if e.driver.Load() != driverBench {
		return
	}
	select {
	case e.rouse <- struct{}{}:
	default:
	}
}
