package link

import (
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan/internal/wire"
)

// reminder finds messages that have vanished on the way, or whose acknowledgement has. A peer acknowledges what it has
// received. When it stays silent about a message for long, this side tells it once how many messages there were. The
// peer then acknowledges again, or finds that some are missing, which ends the session on both sides. When messages
// wait long for credit, this side also asks for credit again: the message that told of it may have vanished.
type reminder struct {
	every time.Duration
	timer *time.Timer // nil: no reminders; guarded by sessionSet.mu
	due   atomic.Bool // the timer has fired
}

// start starts the timer. It only wakes the driver, which sends: nobody would contain a panic on the timer's goroutine.
func (x *reminder) start(t *Transport, every time.Duration) {
	if x.every = every; every <= 0 {
		return
	}
	t.sessions.mu.Lock()
	defer t.sessions.mu.Unlock()
	x.timer = time.AfterFunc(every, func() {
		x.due.Store(true)
		t.engine.WakeAll()
	})
}

// stop stops the timer of a transport that is closed.
func (x *reminder) stop(all *sessionSet) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if x.timer != nil {
		x.timer.Stop()
	}
}

// remind looks at all sessions, and starts the timer again. Driver only.
func (x *reminder) remind(t *Transport) {
	x.due.Store(false)
	t.vans.current = nil // for the report of a panic
	if !t.sessions.restart(x) {
		return
	}
	for _, s := range t.sessions.list() {
		s.out.remind()
	}
}

// restart starts the timer of x again unless the transport is closed.
func (x *sessionSet) restart(r *reminder) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return false
	}
	r.timer.Reset(r.every)
	return true
}

// remind tells the peer once of the oldest message that it leaves unacknowledged for a whole turn. It asks for credit
// every turn while nothing else is left to wait for.
func (x *sender) remind() {
	x.session.mu.Lock()
	defer x.session.mu.Unlock() // also when the van panics
	f := x.unacked.first()
	switch {
	case x.session.state == stateLost:
	case f == nil:
		if x.credit.requested && x.waiting > 0 {
			x.requestCreditAgain()
		}
	case !f.completed:
	case f.sequence != x.overdue:
		x.overdue = f.sequence
	case f.sequence != x.reminded:
		if x.sendCount() == nil {
			x.reminded = f.sequence
		}
	}
}

// requestCreditAgain repeats the request for credit after a whole turn.
func (x *sender) requestCreditAgain() {
	if x.credit.overdue {
		_ = x.sendCount() // the next turn repeats it
	}
	x.credit.overdue = true
}

// sendCount tells the peer which message was the last, and asks for an acknowledgement.
func (x *sender) sendCount() error {
	return x.sendHeader(&wire.Header{Kind: wire.KindAck, Flags: wire.FlagAckNow, Sequence: x.sequence}, nil)
}
