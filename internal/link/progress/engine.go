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
	// things happened. With all == false it may leave out what was not active lately; while
	// somebody drives it is asked about all every 200 us.
	Poll(all bool) int
	// Flush sends what was held back to ride on later messages. With idle == true
	// nobody will poll for long, so everything goes; else only what is overdue.
	Flush(idle bool)
	// Arm is called before everybody sleeps. true: one of FDs is readable, or becomes so, when Poll(true)
	// would find something, until the next Poll; a source without FDs has nothing, and calls Engine.Wake
	// for the next thing. false: poll again.
	Arm() bool
	// FDs returns the descriptors that tell what comes while the source is armed.
	FDs() []Descriptor
}

// Descriptor tells by being readable that there is something to poll.
type Descriptor struct {
	FD int
	// Quiet descriptors are hardly ever readable while the source is not armed, so they
	// need not be kept from waking the driver for what a waiter handles.
	Quiet bool
}

// Mode is a policy of waiting.
type Mode uint8

// Modes.
const (
	Auto Mode = iota // spin, yield, sleep; budgets follow the cores
	Spin             // never sleep: lowest latency, a core per waiter
	Park             // sleep at once: no CPU while waiting
)

// Options tune an engine.
type Options struct {
	Mode  Mode
	Spin  time.Duration // how long a waiter spins; 0 for the default
	Yield time.Duration // how long it yields after that; 0 for the default
	Bind  func()        // called once on the driver's thread, which the driver then keeps; nil: any thread will do
	Cores float64       // processor time that the process may use per second, quota of its cgroup included; 0 for all that Go uses
	// Panicked is told of a panic below Wait, WaitFor or the driver, by the goroutine that panics, while its stack is
	// still there. driving: that goroutine holds the token. It returns whether the panic ends here, and the error that all waits
	// end with from then on (see Fail): then the wait that panicked returns it, too. nil: panics go on.
	Panicked func(value any, driving bool) (contain bool, cause error)
}

const (
	defaultSpin  = 30 * time.Microsecond
	defaultYield = 60 * time.Microsecond
	tick         = time.Millisecond
	slowTick     = 4 * tick
	// longAway is the absence from the node from which who ends a wait settles at once.
	longAway = int64(40 * time.Microsecond)
	// tightest is the most that Engine.tight becomes; above its half, waits follow each other closely.
	tightest = 8
)

// Engine moves the bytes of one node. All exported methods may be called from any goroutine.
type Engine struct {
	token

	// The holder's.
	src      Source
	mode     Mode
	threaded bool  // who sleeps occupies a thread, and for a while a processor of Go's
	tight    int   // goes up with each wait that comes soon after the last one, and down with the others
	seenAt   int64 // the last look at the clock while driving
	allAt    int64 // the last Poll(true) of a waiter
	late     bool  // seenAt is too old: see Linger
	waits    uint8 // counted while waiting does not pay, for the one that tries anyway
	spin     int64 // ns
	yield    int64 // ns

	listening atomic.Bool // the driver is woken by what comes; written by the holder

	left    atomic.Int64 // when the program last left the node, ns
	absent  atomic.Bool  // it was away for long since the last wait
	ticking atomic.Int32 // whether, and how soon, the tick will look after what was left unsettled
	napping atomic.Bool  // the holder may be asleep
	parker  parker
	timer   *time.Timer   // of the tick
	seen    atomic.Uint64 // turns at the last tick

	mu      sync.Mutex
	waiters waiterList
	free    *waiter // recycled waiters, linked by next

	timers  timerList
	stopped chan struct{}

	panicked func(any, bool) (bool, error)
	cause    atomic.Pointer[error] // why Fail ended the engine
	closing  atomic.Bool           // somebody is in Close
}

// NewEngine starts an engine with its background driver. Close ends it.
func NewEngine(src Source, o Options) (*Engine, error) {
	e := &Engine{src: src, mode: o.Mode, stopped: make(chan struct{}), panicked: o.Panicked}
	e.spin, e.yield = budgets(o)
	fds := src.FDs()
	p, err := newParker(fds)
	if err != nil {
		return nil, err
	}
	e.parker, e.threaded = p, len(fds) > 0
	e.timer = time.AfterFunc(time.Hour, e.tick)
	e.timer.Stop()
	go e.drive(o.Bind)
	return e, nil
}

// Set makes ev happen and wakes everybody who waits for it. Budget: one atomic swap when nobody sleeps.
func (e *Engine) Set(ev *Event) {
	old := ev.state.Swap(eventSet)
	if old&eventAwaited != 0 {
		e.wakeFor(ev)
	}
	if old&eventNapped != 0 {
		e.parker.rouse()
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

// Wake is for sources without descriptors: what they were armed for has come. Who naps armed them, and
// looks again before it leaves them to the driver.
func (e *Engine) Wake() {
	if e.napping.Load() {
		e.parker.rouse()
	} else {
		e.parker.wake()
	}
}

// Kick has the source polled soon, whoever drives.
func (e *Engine) Kick() {
	e.parker.wake()
	if e.napping.Load() {
		e.parker.rouse()
	}
}

// Nudge asks for progress soon although nobody may be waiting: output is stuck
// for want of room. The mark stays until Settle.
func (e *Engine) Nudge() {
	if !e.mark(stuck) {
		e.parker.wake()
	}
}

// Settle ends the effect of Nudge: nothing is stuck any more.
func (e *Engine) Settle() {
	if e.has(stuck) {
		e.word.And(^stuck)
	}
}

// Close ends the driver, wakes all waiters with stepvan.ErrClosed, or the cause of Fail, and keeps the
// token for the caller, who alone may poll the source from then on.
func (e *Engine) Close() {
	e.word.Or(closed)
	if e.closing.Swap(true) {
		<-e.stopped
		return
	}
	e.Kick()
	<-e.stopped
	for !e.seize() {
		e.wakeFor(nil)
		e.parker.rouse()
		runtime.Gosched()
	}
	e.wakeFor(nil)
	e.timer.Stop()
	e.parker.close()
}

// Enter and Leave bracket what a program does in the node besides waiting and takes long, like
// sending much, so that it is not taken for an absence.
func (e *Engine) Enter() {
	if last := e.left.Load(); last != 0 && nanotime()-last > longAway && !e.absent.Load() {
		e.absent.Store(true)
	}
}

// Leave is Enter's other end.
func (e *Engine) Leave() { e.left.Store(nanotime()) }

// Linger says that moving what came took long, so that the program has not been away since the last
// look at the clock. Within Source.Poll only.
func (e *Engine) Linger() { e.late = true }
