package progress

import (
	"sync"
	"time"
)

// waiterQueue holds the parked waiters of an engine.
type waiterQueue struct {
	mu   sync.Mutex
	list waiterList
	free *waiter // unused waiters, linked by next
}

// waiter is one parked call of Wait.
type waiter struct {
	ev         *Event
	wake       chan struct{} // capacity 1
	granted    bool          // the token came with the wake-up; guarded by waiterQueue.mu
	hasDriven  bool          // it has driven until sleepLimit passed, and leaves the token to others
	next, prev *waiter
}

// park sleeps on a channel until the event is set or the limit is reached. It drives when another goroutine hands the
// token over. The argument turn is the turn in which the caller has driven in vain and armed the source, or notDriven.
func (w *wait) park(turn uint64) error {
	e := w.engine
	var timeout <-chan time.Time
	if d := w.timeLeft(); d >= 0 {
		t := e.timers.take(d)
		defer e.timers.put(t)
		timeout = t.C
	}
	for {
		p := w.enqueue(turn)
		if p == nil {
			if w.ev.IsSet() {
				return nil
			}
			return e.ended()
		}
		var limit error
		select {
		case <-p.wake:
		case <-timeout:
			limit = errWaitTimeout
		case <-w.cancel:
			limit = errContextEnded
		}
		if e.waiters.remove(p, limit == nil) {
			turn = e.token.turns()
			if done, err := w.driveGranted(limit); done {
				return err
			}
		}
		if w.ev.IsSet() {
			return nil
		}
		if limit != nil {
			return limit
		}
		if e.token.has(closed) {
			return e.ended()
		}
	}
}

// driveGranted drives with a token that another goroutine has handed over.
func (w *wait) driveGranted(limit error) (done bool, err error) {
	w.driving.holdsToken = true
	w.engine.listener.stop()
	if limit == nil && !w.ev.IsSet() {
		done, err = w.drive()
	}
	w.engine.endDriving(!done && limit == nil && !w.ev.IsSet())
	w.driving.holdsToken = false
	return done, err
}

// enqueue puts the caller among the parked waiters. It returns nil when nothing is left to wait for.
func (w *wait) enqueue(turn uint64) *waiter {
	e := w.engine
	e.waiters.mu.Lock()
	defer e.waiters.mu.Unlock()
	if !w.ev.await(eventParked) || e.token.has(closed) {
		return nil
	}
	p := e.waiters.addLocked(w.ev, turn != notDriven)
	e.token.mark(parked)
	switch {
	case e.token.has(held) || e.token.turns() == turn:
	case p.hasDriven:
		e.sleeper.wakeBackground() // another goroutine has driven since, and may not have armed the source
	case e.token.take():
		e.waiters.grantLocked(p)
	}
	return p
}

// wake wakes the waiters for ev, or all of them if ev is nil.
func (q *waiterQueue) wake(ev *Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for w := q.list.head; w != nil; {
		next := w.next
		if ev == nil || w.ev == ev {
			q.list.remove(w)
			w.wake <- struct{}{}
		}
		w = next
	}
}

// wantToken reports whether a parked waiter could use the token.
func (q *waiterQueue) wantToken() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.list.undriven > 0
}

// handOver gives the token t to a parked waiter that can use it. The caller keeps the token when no waiter can use it.
func (q *waiterQueue) handOver(t *token) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.handOverLocked(t)
}

// handOverLocked is handOver with mu held.
func (q *waiterQueue) handOverLocked(t *token) bool {
	w := q.list.firstUndriven()
	if w == nil || t.has(closed) {
		return false
	}
	q.grantLocked(w)
	return true
}

// grantLocked wakes w with the token. mu is held.
func (q *waiterQueue) grantLocked(w *waiter) {
	q.list.remove(w)
	w.granted = true
	w.wake <- struct{}{}
}

// addLocked enqueues a waiter for ev. mu is held.
func (q *waiterQueue) addLocked(ev *Event, hasDriven bool) *waiter {
	w := q.free
	if w == nil {
		w = &waiter{wake: make(chan struct{}, 1)}
	} else {
		q.free = w.next
	}
	w.ev, w.hasDriven, w.granted = ev, hasDriven, false
	q.list.push(w)
	return w
}

// remove takes w out of the queue, if nobody has yet, and recycles it. It reports whether the token came with the
// wake-up of w. woken: the caller has received that wake-up.
func (q *waiterQueue) remove(w *waiter, woken bool) (granted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.ev != nil {
		q.list.remove(w)
	} else if !woken {
		<-w.wake // the wake-up crossed with the end of the wait
	}
	granted = w.granted
	w.granted = false
	w.next = q.free
	q.free = w
	return granted
}

// waiterList is an intrusive list in order of arrival.
type waiterList struct {
	head, tail *waiter
	undriven   int // waiters that have not driven yet
}

func (l *waiterList) push(w *waiter) {
	w.prev, w.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = w
	} else {
		l.head = w
	}
	l.tail = w
	if !w.hasDriven {
		l.undriven++
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
	if !w.hasDriven {
		l.undriven--
	}
	w.next, w.prev, w.ev = nil, nil, nil
}

// firstUndriven returns the oldest waiter that could use the token.
func (l *waiterList) firstUndriven() *waiter {
	if l.undriven == 0 {
		return nil
	}
	for w := l.head; w != nil; w = w.next {
		if !w.hasDriven {
			return w
		}
	}
	return nil
}
