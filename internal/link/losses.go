package link

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

const (
	// lossPolls bounds how often the vans are asked again before a loss is told.
	lossPolls = 4
	// lossPause is how long the loss of a peer that gave no reason waits for a loss that may be its cause.
	lossPause = 100 * time.Millisecond
)

// lossQueue holds the ends of sessions that the handlers have not been told. Driver only, except first.
type lossQueue struct {
	transport *Transport
	pause     time.Duration
	first     atomic.Int32 // sessions of TellLossFirst that are not lost
	list      []loss
	added     bool // something was added since the last look
	due       time.Time
	timer     *time.Timer // wakes the driver at due
}

// loss is the end of one session.
type loss struct {
	session  *Session
	err      error
	detached bool // the van has reported that meanwhile
}

// TellLossFirst puts the loss of s before the losses that it may have caused. These are losses of sessions that ended
// at the same moment, or shortly before without a reason. It has no effect when s is lost already. Any goroutine, once.
func (s *Session) TellLossFirst() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == stateLost {
		return // lose has counted already
	}
	s.tellFirst.Store(true)
	s.transport.losses.first.Add(1)
}

// add loses s because of its peer, after everything else that has arrived by then.
func (x *lossQueue) add(s *Session, err error) {
	if s.lost {
		return
	}
	s.lost = true // for what the van has already reported
	x.list, x.added = append(x.list, loss{session: s, err: err}), true
}

// settle tells losses, or waits a while for their cause. It returns how much happened.
func (x *lossQueue) settle() (total int) {
	if !x.added && time.Now().Before(x.due) {
		return 0
	}
	if x.added {
		total = x.transport.vans.pollRepeatedly(lossPolls)
		x.added = false
		if x.first.Load() > 0 && !slices.ContainsFunc(x.list, loss.isFirst) {
			return total + x.tellSome()
		}
	}
	return total + x.tellAll()
}

// tellSome tells the losses whose reason is known, and those of sessions that no handler knows. The others wait.
func (x *lossQueue) tellSome() int {
	var ready, waiting []loss
	for _, l := range x.list {
		if l.explained() || l.unknownToHandlers() {
			ready = append(ready, l)
		} else {
			waiting = append(waiting, l)
		}
	}
	x.list = waiting
	if len(waiting) > 0 && x.due.IsZero() {
		x.due = time.Now().Add(x.pause)
		x.timer = time.AfterFunc(x.pause, x.transport.engine.WakeAll)
	}
	x.tell(ready)
	return len(ready)
}

// isFirst reports whether l may be the cause of others.
func (l loss) isFirst() bool { return l.session.tellFirst.Load() }

// explained reports whether the reason of l is known.
func (l loss) explained() bool {
	return errors.Is(l.err, ErrLeft) || errors.Is(l.err, stepvan.ErrClosed)
}

// unknownToHandlers reports whether no handler knows the session of l. Any number of unknown peers may come and go: if
// their losses waited, each pass would look at all of them.
func (l loss) unknownToHandlers() bool {
	return !l.session.opening.phase.open() && l.session.opening.accepted == 0
}

// tellAll tells all losses.
func (x *lossQueue) tellAll() int {
	list := x.list
	if x.timer != nil {
		x.timer.Stop() // it would keep the whole transport in memory
	}
	x.list, x.added, x.due, x.timer = nil, false, time.Time{}, nil
	slices.SortStableFunc(list, func(a, b loss) int { return rank(b) - rank(a) })
	x.tell(list)
	return len(list)
}

func (x *lossQueue) tell(list []loss) {
	for _, l := range list {
		x.transport.vans.current = &van.Event{Kind: van.EventLost, Endpoint: l.session.ep} // for the report of a panic
		l.session.lose(l.err)
		if l.detached {
			l.session.grants.detach()
		}
	}
	x.transport.vans.current = nil // it would keep the last session in memory
}

// noteDetached notes that the peer of s reaches nothing any more, if the loss of s is still to be told.
func (x *lossQueue) noteDetached(s *Session) bool {
	for i := range x.list {
		if l := &x.list[i]; l.session == s {
			l.detached = true
			return true
		}
	}
	return false
}

// rank is higher for what is told first.
func rank(l loss) int {
	if l.isFirst() {
		return 1
	}
	return 0
}
