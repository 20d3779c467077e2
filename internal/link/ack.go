package link

import (
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

const (
	// ackDelay is how long an acknowledgement waits for a message to ride on while the node polls.
	ackDelay = int64(300 * time.Microsecond)
	// ackEvery bounds how many messages may be unacknowledged because nothing is sent the other way.
	ackEvery = 32
)

// hear takes what a header says of the session: the peer's acknowledgement and credit, and the
// place of a message in the sequence. Driver only.
func (s *Session) hear(h *wire.Header) error {
	if h.Ack == s.peerAck && h.Credit == s.freed && h.Kind != wire.KindData {
		return nil
	}
	var done lane
	s.mu.Lock()
	err := s.checkCounts(h)
	if err == nil {
		if h.Kind == wire.KindData {
			s.received++
		}
		s.acknowledged(h, &done)
	}
	s.mu.Unlock()
	finish(done, nil)
	return err
}

// acknowledged settles what the peer has received, and sends what it made room for. mu is held.
func (s *Session) acknowledged(h *wire.Header, done *lane) {
	s.peerAck = h.Ack
	for f := s.unacked.head; f != nil && f.seq <= h.Ack; f = s.unacked.head {
		s.unacked.pop()
		f.acked = true
		s.settle(f, done)
	}
	if h.Credit > s.freed {
		s.freed, s.hungry = h.Credit, false
	}
	if s.pending > 0 {
		s.pump()
	}
}

// checkCounts holds the counters of a header against what can be. mu is held.
func (s *Session) checkCounts(h *wire.Header) error {
	switch {
	case h.Kind == wire.KindData && h.Sequence != s.received+1:
		return &stepvan.ProtocolError{Field: "sequence", Reason: fmt.Sprintf("%d, expected %d", h.Sequence, s.received+1)}
	case h.Ack > s.seq:
		return &stepvan.ProtocolError{Field: "ack", Reason: "acknowledges what was never sent"}
	case h.Ack < s.peerAck:
		return &stepvan.ProtocolError{Field: "ack", Reason: "goes backwards"}
	case h.Credit > s.used:
		return &stepvan.ProtocolError{Field: "credit", Reason: "releases what was never sent"}
	case h.Credit < s.freed:
		return &stepvan.ProtocolError{Field: "credit", Reason: "goes backwards"}
	}
	return nil
}

// settle recycles f when van and peer are both done with it, and collects its message. mu is held.
func (s *Session) settle(f *frame, done *lane) {
	if !f.sent || !f.acked {
		return
	}
	if f.last {
		done.push(f.out)
	}
	s.dropFrame(f)
}

// finish tells the completers, with no lock held.
func finish(done lane, err error) {
	for done.head != nil {
		o := done.pop()
		if o.Completer != nil {
			o.Completer.Done(o, err)
		}
	}
}

// onCompletion takes a frame back from the van. Driver only.
func (s *Session) onCompletion(index int) {
	var done, delivered lane
	s.mu.Lock()
	f := s.frames[index]
	f.sent = true
	s.inVan -= f.size
	o := f.out
	if o != nil {
		o.inflight--
	}
	switch {
	case o == nil:
		s.dropFrame(f)
	case s.state == stateLost && f.acked && f.last:
		s.settle(f, &delivered)
	case s.state == stateLost:
		s.dropFrame(f)
		if o.inflight == 0 {
			done.push(o)
		}
	default:
		s.settle(f, &done)
	}
	if s.pending > 0 || s.state == stateClosing {
		s.pump()
	}
	if len(s.withdrawn) > 0 {
		s.withdraw()
	}
	err := s.err
	s.mu.Unlock()
	finish(delivered, nil)
	finish(done, err)
}

// oweAck notes that the peer is owed an acknowledgement, and gives it when it is due at once. A piece after
// which more of its message comes is acknowledged with the last one: sooner it would set nothing free. Driver only.
func (s *Session) oweAck(flags wire.Flags, whole bool) {
	if s.unsaid++; s.unsaid >= ackEvery {
		s.unsaid = s.silent()
	}
	if flags&wire.FlagAckNow != 0 || s.unsaid >= ackEvery {
		s.tellNow()
		return
	}
	if whole {
		s.listDue()
	}
}

// silent counts the messages that the peer does not know to have arrived.
func (s *Session) silent() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received - s.toldAck
}

func (s *Session) listDue() {
	if !s.due.Load() && !s.due.Swap(true) {
		s.node.addDue(s)
	}
}

// tellNow sends acknowledgement and credit, unless the peer knows them. Any goroutine.
func (s *Session) tellNow() {
	s.mu.Lock()
	ok := s.state == stateLost || s.told() || s.sendOwn(wire.KindAck, 0, nil) == nil
	s.mu.Unlock()
	if !ok {
		s.listDue()
	}
}

// told reports whether the peer knows everything. mu is held.
func (s *Session) told() bool {
	return s.toldAck == s.received && s.toldCredit == s.released.Load()
}

// giveCredit returns the credit of n bytes of payload. Any goroutine.
func (s *Session) giveCredit(n uint64) {
	total := s.released.Add(n)
	if s.peerHungry.Load() || total-s.knownCredit.Load() > uint64(s.node.creditBytes)/4 && s.withholds(total) {
		s.tellNow()
		return
	}
	s.listDue()
}

// withholds reports whether much of the credit up to total has not been told.
func (s *Session) withholds(total uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.knownCredit.Store(s.toldCredit)
	return total-s.toldCredit > uint64(s.node.creditBytes)/4
}

// Flush implements progress.Source: acknowledgements that found nothing to ride on.
func (n *Transport) Flush(idle bool) {
	if n.dueCount.Load() == 0 {
		return
	}
	n.dueMu.Lock()
	list := n.dueList
	n.dueList = n.dueSpare[:0]
	n.dueCount.Store(0)
	n.dueMu.Unlock()
	t := now()
	for i, s := range list {
		list[i] = nil
		s.flushDue(idle, t)
	}
	n.dueSpare = list[:0]
}

func (s *Session) flushDue(idle bool, t int64) {
	if s.dueSince == 0 {
		s.dueSince = t
	}
	if !idle && t-s.dueSince < ackDelay {
		s.mu.Lock()
		told := s.told()
		s.mu.Unlock()
		if !told {
			s.node.addDue(s)
			return
		}
	}
	s.dueSince = 0
	s.due.Store(false)
	s.tellNow()
}

func (n *Transport) addDue(s *Session) {
	n.dueMu.Lock()
	n.dueList = append(n.dueList, s)
	n.dueCount.Store(int32(len(n.dueList)))
	n.dueMu.Unlock()
}
