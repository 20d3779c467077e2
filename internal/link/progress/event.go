package progress

import "sync/atomic"

// Event is something to wait for. The zero value is ready to use. It must not be copied.
type Event struct {
	state atomic.Uint32
}

const (
	eventSet     = 1 << iota // it has happened
	eventAwaited             // somebody is parked for it
	eventNapped              // the one who naps waits for it
)

// IsSet reports whether the event has happened. Any goroutine.
func (ev *Event) IsSet() bool { return ev.state.Load()&eventSet != 0 }

// Reset makes the event wait for its next Set. Only while nobody waits for it.
func (ev *Event) Reset() { ev.state.Store(0) }

// await notes that somebody sleeps until ev is set; false when it is already.
func (ev *Event) await(how uint32) bool { return ev.state.Or(how)&eventSet == 0 }

// waiter is one parked call of Wait.
type waiter struct {
	ev         *Event
	wake       chan struct{} // capacity 1
	granted    bool          // the token came with the wake-up; guarded by Engine.mu
	spent      bool          // has driven in vain; the token is of no use to it
	next, prev *waiter
}

// waiterList is an intrusive list in order of arrival.
type waiterList struct {
	head, tail *waiter
	fresh      int // waiters that have not driven yet
}

func (l *waiterList) push(w *waiter) {
	w.prev, w.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = w
	} else {
		l.head = w
	}
	l.tail = w
	if !w.spent {
		l.fresh++
	}
}

func (l *waiterList) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.tail = w.prev
	}
	if !w.spent {
		l.fresh--
	}
	w.next, w.prev, w.ev = nil, nil, nil
}

// firstFresh returns the oldest waiter that could make use of the token.
func (l *waiterList) firstFresh() *waiter {
	if l.fresh == 0 {
		return nil
	}
	for w := l.head; w != nil; w = w.next {
		if !w.spent {
			return w
		}
	}
	return nil
}
