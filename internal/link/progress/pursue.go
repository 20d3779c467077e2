package progress

import (
	"math"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// hotPasses is how often a waiter polls before it first looks at a clock.
	hotPasses = 16
	// round is how often it polls between two looks after that.
	round = 8
	// thoroughEvery is how long it may be between two polls about all.
	thoroughEvery = int64(200 * time.Microsecond)
	// courtesy is how long it polls between two looks at what was held back.
	courtesy = int64(10 * time.Microsecond)
	// mostRounds bounds a phase by count as well, for clocks that stand still (testing/synctest).
	mostRounds = 2_500
	// napLimit is how long a waiter sleeps with the token, and with a processor of Go's.
	napLimit = int64(4 * time.Millisecond)
	// napSlice is the same while a context may end the wait, which does not end a nap.
	napSlice = int64(time.Millisecond)
	// linger is how long a waiter polls on after it was woken.
	linger = int64(30 * time.Microsecond)
)

// pursue drives until ev is set. done is false when the caller is to park. The caller has the token.
func (e *Engine) pursue(ev *Event, l *limit) (done bool, err error) {
	spins := e.spins()
	if spins {
		for pass := range hotPasses {
			e.src.Poll(pass == 0 && e.thorough(e.seenAt))
			if ev.IsSet() {
				crew.ease()
				return true, nil
			}
		}
		if done, err := e.spinOn(ev, l); done {
			return true, err
		}
	}
	return e.nap(ev, l, spins)
}

// spins reports whether the wait that begins spins before it sleeps.
func (e *Engine) spins() bool {
	switch {
	case e.mode != Auto || !e.threaded:
		return e.mode == Spin
	case crew.crowded.Load():
		crew.look(nanotime())
		return false
	case !crew.heavy():
		return true
	}
	e.waits++
	return e.waits%retry == 0
}

// spinOn polls until the budget is used up. Budget of a round without events: eight polls of the
// source and one look at the clock.
func (e *Engine) spinOn(ev *Event, l *limit) (done bool, err error) {
	if !crew.enlist(1) {
		return false, nil
	}
	defer crew.discharge()
	b := e.budget()
	last := nanotime()
	idle, flushed := last, last
	crew.look(last)
	for rounds := 1; ; rounds++ {
		moved := 0
		for range round {
			moved += e.src.Poll(false)
			if ev.IsSet() {
				e.seenAt = last
				b.tell(true)
				return true, nil
			}
		}
		now := nanotime()
		if moved > 0 {
			idle, rounds = now, 1
		} else {
			b.gap(now - last)
		}
		last = now
		if e.thorough(now) {
			e.src.Poll(true)
		}
		if err := e.over(l, now); err != nil {
			e.seenAt = now
			return true, err
		}
		if now-flushed > courtesy {
			flushed = now
			e.src.Flush(false)
		}
		if b.alone {
			runtime.Gosched() // elsewhere another processor takes who waits for this one
		}
		if !b.lasts(now-idle, rounds) {
			e.seenAt = now
			b.tell(false)
			return false, nil
		}
	}
}

// thorough reports whether it is time to ask the source about all.
func (e *Engine) thorough(now int64) bool {
	if now-e.allAt < thoroughEvery {
		return false
	}
	e.allAt = now
	return true
}

// over is why a wait ends in vain, nil while it may go on.
func (e *Engine) over(l *limit, now int64) error {
	if e.has(closed) {
		return e.ended()
	}
	return l.over(now)
}

// nap sleeps in the kernel, token in hand: the thread that is woken is the one that returns. Budget
// of a nap that the awaited message ends: one system call, and one Poll.
func (e *Engine) nap(ev *Event, l *limit, spun bool) (done bool, err error) {
	if e.mode == Spin {
		return false, nil
	}
	began, end := nanotime(), int64(math.MaxInt64)
	if e.threaded {
		if !crew.enlist(0) {
			return false, nil
		}
		defer crew.discharge()
		if crew.look(began); crew.crowded.Load() {
			return false, nil
		}
		end = began + napLimit
	}
	e.napping.Store(true)
	done, err = e.sleep(ev, l, began, end, spun)
	e.napping.Store(false)
	return done, err
}

// sleep is nap until the given end.
func (e *Engine) sleep(ev *Event, l *limit, began, end int64, spun bool) (done bool, err error) {
	for now := began; ; now = nanotime() {
		e.seenAt = now
		if ev.IsSet() {
			if spun && now-began < linger {
				crew.press(0) // it was probably the spinning that kept the other side from its core
			}
			return true, nil
		}
		if err := e.over(l, now); err != nil {
			return true, err
		}
		if now >= end {
			return false, nil
		}
		e.src.Flush(true)
		if e.src.Arm() {
			e.doze(ev, l, end, now)
		}
		e.look(ev)
	}
}

// look follows a sleep: unless waiting is to cost nothing it goes on for a
// while, since large messages come in many parts.
func (e *Engine) look(ev *Event) {
	if e.src.Poll(false) == 0 && !ev.IsSet() {
		e.src.Poll(true)
	}
	if !e.threaded || e.mode == Park || crew.heavy() {
		return
	}
	for end := nanotime() + linger; !ev.IsSet() && nanotime() < end; {
		for range round {
			e.src.Poll(false)
		}
	}
}

// doze is one sleep, which begins now.
func (e *Engine) doze(ev *Event, l *limit, end, now int64) {
	if !ev.await(eventNapped) || e.has(closed) {
		return
	}
	d := int64(-1)
	switch {
	case e.threaded:
		d = end - now
		if l.cancel != nil {
			d = min(d, napSlice)
		}
		if l.until > 0 {
			d = min(d, l.until-now)
		}
	case l.until > 0:
		d = max(0, int64(time.Until(l.deadline)))
	}
	if e.parker.nap(time.Duration(d), l.cancel) {
		l.until = 1 // timers and nanotime need not agree
	}
	ev.state.And(^uint32(eventNapped))
}

func schedYield() {
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
