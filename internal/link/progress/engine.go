package progress

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Source is what an engine drives. The holder of the token calls all methods except FDs.
type Source interface {
	// Poll moves everything that can move without blocking and returns how many things happened. When all is false it
	// may skip what was not active lately. A driving waiter asks for all every 200 us.
	Poll(all bool) int
	// Flush sends what was held back to travel with later messages. When idle is true, nobody will poll for a long
	// time, and Flush sends everything. Otherwise it sends only what is overdue.
	Flush(idle bool)
	// Arm is called before everybody sleeps. After true, and until the next Poll, one of FDs is readable, or becomes
	// so, when Poll(true) would find something. A source without FDs has nothing at this moment, and calls
	// [Engine.Wake] for the next thing. After false, the caller polls again.
	Arm() bool
	// FDs returns the descriptors that become readable while the source is armed.
	FDs() []Descriptor
}

// Descriptor becomes readable when there is something to poll.
type Descriptor struct {
	FD int
	// Quiet descriptors are hardly ever readable while the source is not armed. The background driver may keep
	// listening to them while a waiter drives.
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
	Bind  func()        // called on the background driver's thread, which it then keeps; nil: any thread
	Cores float64       // processor time per second that the process may use (cgroup quota); 0: all that Go uses
	// Throttled counts the periods in which the quota was used up; nil: there is no quota. Any goroutine calls it.
	Throttled func() int64
	// Panicked is called for a panic below Wait, WaitFor or the background driver, on the goroutine that panics, while
	// its stack still exists. When driving is true, that goroutine holds the token. The panic ends here when contain is
	// true, and continues otherwise. All waits return cause from then on (see [Engine.Fail]). Without Panicked, panics
	// continue.
	Panicked func(value any, driving bool) (contain bool, cause error)
}

// Engine moves the bytes of one transport. All exported methods may be called from any goroutine.
type Engine struct {
	Looks Looks // of the source

	token     token
	src       Source
	policy    policy
	polls     pollClock
	listener  listener
	absence   absence
	ticker    ticker
	sleeping  atomic.Bool // the holder of the token may be asleep
	sleeper   sleeper
	waiters   waiterQueue
	timers    timerPool
	histories histories
	throttled func() int64  // see Options
	stopped   chan struct{} // closed when the background driver has ended
	closing   atomic.Bool   // Close has been called
	panicked  func(any, bool) (bool, error)
	cause     atomic.Pointer[error] // why Fail ended the engine
}

// Looks counts how often a source has been asked for all that has arrived. A process that gets little of the processors
// may not ask for long. Nobody asks while all sleep, but [Engine.WakeAll] has somebody do so.
type Looks struct{ n atomic.Uint64 }

// Count is the number of calls of Poll(true) that have returned. Any goroutine.
func (l *Looks) Count() uint64 { return l.n.Load() }

// poll polls all of the source. Holder of the token only.
func (l *Looks) poll(src Source) int {
	n := src.Poll(true)
	l.n.Add(1)
	return n
}

// pollClock holds the times of the last polls. Holder of the token only.
type pollClock struct {
	clockAt int64 // when the clock was last read while driving
	allAt   int64 // the last Poll(true) of a waiter
	stale   bool  // clockAt is too old: see NoteDelay
}

// pollAllEvery is the longest time between two calls of Poll(true).
const pollAllEvery = int64(200 * time.Microsecond)

// takeAll reports whether the next poll is to be Poll(true), which is due once every pollAllEvery, and takes it as
// done.
func (c *pollClock) takeAll(now int64) bool {
	if now-c.allAt < pollAllEvery {
		return false
	}
	c.allAt = now
	return true
}

// NewEngine starts an engine with its background driver. Close ends it.
func NewEngine(src Source, o Options) (*Engine, error) {
	e := &Engine{src: src, stopped: make(chan struct{}), throttled: o.Throttled, panicked: o.Panicked}
	fds := src.FDs()
	s, err := newSleeper(fds)
	if err != nil {
		return nil, err
	}
	e.sleeper, e.listener.sleeper = s, s
	e.policy = newPolicy(o, len(fds) > 0)
	e.ticker.timer = time.AfterFunc(time.Hour, e.tick)
	e.ticker.timer.Stop()
	go e.runBackground(o.Bind)
	return e, nil
}

// Wake is for sources without descriptors. An armed source calls it when something has arrived. It wakes the sleeping
// holder of the token, or else the background driver. A holder that wakes polls the source before it gives the token
// back.
func (e *Engine) Wake() {
	if e.sleeping.Load() {
		e.sleeper.wakeSleeper()
	} else {
		e.sleeper.wakeBackground()
	}
}

// WakeAll wakes the background driver and a sleeping holder of the token, so that one of them polls the source soon.
func (e *Engine) WakeAll() {
	e.sleeper.wakeBackground()
	if e.sleeping.Load() {
		e.sleeper.wakeSleeper()
	}
}

// SetStuck says that output waits for room. The engine then watches the source although nobody may be waiting, until
// ClearStuck.
func (e *Engine) SetStuck() {
	if !e.token.mark(stuck) {
		e.sleeper.wakeBackground()
	}
}

// ClearStuck ends the effect of SetStuck.
func (e *Engine) ClearStuck() {
	if e.token.has(stuck) {
		e.token.clear(stuck)
	}
}

// Close ends the background driver and all waits, with stepvan.ErrClosed or the cause of Fail. It keeps the token for
// its caller. Nobody else may poll the source from then on.
func (e *Engine) Close() {
	e.token.mark(closed)
	if e.closing.Swap(true) {
		<-e.stopped
		return
	}
	e.WakeAll()
	<-e.stopped
	for !e.token.takeClosed() {
		e.waiters.wake(nil)
		e.sleeper.wakeSleeper()
		runtime.Gosched()
	}
	e.waiters.wake(nil)
	e.ticker.timer.Stop()
	e.sleeper.close()
}

// BeginCall and EndCall enclose a call of the program that takes long without waiting, such as sending much. Without
// them the engine would take the time of the call for an absence of the program.
func (e *Engine) BeginCall() { e.absence.noteReturn(nanotime()) }

// EndCall is the other end of BeginCall.
func (e *Engine) EndCall() { e.absence.left.Store(nanotime()) }

// NoteDelay says that moving what came took long, so that the program has not been absent since the last look at the
// clock. Only within Source.Poll.
func (e *Engine) NoteDelay() { e.polls.stale = true }
