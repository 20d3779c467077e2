package link

import (
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan/internal/wire"
)

const (
	// ackDelay is how long an acknowledgement waits for a message to carry it while somebody polls.
	ackDelay = int64(300 * time.Microsecond)
	// ackEvery bounds how many frames stay unacknowledged because nothing is sent the other way.
	ackEvery = 32
)

// acknowledgements are what this side owes its peer: acknowledgements of messages, and credit for released payload.
// Every header carries both. This side sends a message of its own for them when no other comes.
type acknowledgements struct {
	session *Session

	// Session.mu guards these.
	received   uint64 // highest sequence received in order
	toldAck    uint64 // received, as the peer knows it
	toldCredit uint64 // released, as the peer knows it

	knownCredit  atomic.Uint64 // toldCredit at some time, for a look without the mutex
	released     atomic.Uint64 // what released messages gave back of the window, ever
	creditWanted atomic.Bool   // the peer waits for credit
	listed       atomic.Bool   // the session is in Transport.acksDue

	// Driver only.
	listedSince int64
	unreported  uint64 // frames of the peer since the last report to it, at most
}

// owe notes that the peer is owed an acknowledgement, and sends it when it is due at once. A piece after which more of
// its message comes is acknowledged with the last one: an earlier acknowledgement would set nothing free. Driver only.
func (x *acknowledgements) owe(flags wire.Flags, whole bool) {
	if x.unreported++; x.unreported >= ackEvery {
		x.unreported = x.countUnreported()
	}
	if flags&wire.FlagAckNow != 0 || x.unreported >= ackEvery {
		x.send()
		return
	}
	if whole {
		x.schedule()
	}
}

// countUnreported counts the frames that the peer does not know to have arrived.
func (x *acknowledgements) countUnreported() uint64 {
	x.session.mu.Lock()
	defer x.session.mu.Unlock()
	return x.received - x.toldAck
}

// schedule has the next Flush send what is owed.
func (x *acknowledgements) schedule() {
	if !x.listed.Load() && !x.listed.Swap(true) {
		x.session.transport.acksDue.add(x.session)
	}
}

// send sends acknowledgement and credit, unless the peer knows them. Any goroutine.
func (x *acknowledgements) send() {
	s := x.session
	s.mu.Lock()
	ok := s.state == stateLost || x.peerKnows() || s.out.sendOwn(wire.KindAck, 0, nil) == nil
	s.mu.Unlock()
	if !ok {
		x.schedule()
	}
}

// peerKnows reports whether the peer knows everything. Session.mu is held.
func (x *acknowledgements) peerKnows() bool {
	return x.toldAck == x.received && x.toldCredit == x.released.Load()
}

// release gives the credit of n bytes of payload back. Any goroutine.
func (x *acknowledgements) release(n uint64) {
	total := x.released.Add(n)
	if x.creditWanted.Load() || total-x.knownCredit.Load() > x.tellAbove() && x.withholds(total) {
		x.send()
		return
	}
	x.schedule()
}

// tellAbove is how much released credit the peer may not know of.
func (x *acknowledgements) tellAbove() uint64 {
	return uint64(x.session.transport.options.CreditBytes) / 4
}

// withholds reports whether the peer does not know much of the credit up to total.
func (x *acknowledgements) withholds(total uint64) bool {
	x.session.mu.Lock()
	defer x.session.mu.Unlock()
	x.knownCredit.Store(x.toldCredit)
	return total-x.toldCredit > x.tellAbove()
}

// flush sends what is owed when it is overdue, or when nobody polls for long. Driver only.
func (x *acknowledgements) flush(idle bool, at int64) {
	s := x.session
	if x.listedSince == 0 {
		x.listedSince = at
	}
	if !idle && at-x.listedSince < ackDelay {
		s.mu.Lock()
		known := x.peerKnows()
		s.mu.Unlock()
		if !known {
			s.transport.acksDue.add(s)
			return
		}
	}
	x.listedSince = 0
	x.listed.Store(false)
	x.send()
}
