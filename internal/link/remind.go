package link

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

// A peer acknowledges what it has received, so a message of which it says nothing for long may have vanished on the way,
// or its acknowledgement may have. The peer is then told once how many messages there were: it acknowledges again, or
// finds that some are missing, which ends the session on both sides. The peer is also asked again for credit when messages
// wait for that for long: what told of it may have vanished.

// callReminder has the driver call remind, which sends: a panic on the timer's goroutine would be nobody's to contain.
func (n *Transport) callReminder() {
	n.remindDue.Store(true)
	n.engine.WakeAll()
}

// remind tells the peers what they leave unacknowledged, and comes again after Options.Remind. Driver only.
func (n *Transport) remind() {
	n.remindDue.Store(false)
	n.at = nil // for the report of a panic
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return
	}
	list := make([]*Session, 0, len(n.sessions))
	for s := range n.sessions {
		list = append(list, s)
	}
	n.reminder.Reset(n.remindEvery)
	n.mu.Unlock()
	for _, s := range list {
		s.remind()
	}
}

// remind tells the peer once of the oldest message that it leaves unacknowledged for a whole turn. It asks for credit
// every turn while nothing else is left to wait for.
func (s *Session) remind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.unacked.head
	switch {
	case s.state == stateLost:
	case f == nil:
		if s.hungry && s.pending > 0 {
			s.begAgain()
		}
	case !f.sent:
	case f.seq != s.overdue:
		s.overdue = f.seq
	case f.seq != s.reminded:
		if s.sendCount() == nil {
			s.reminded = f.seq
		}
	}
}

// begAgain repeats the request for credit after a whole turn. mu is held.
func (s *Session) begAgain() {
	if s.starved {
		_ = s.sendCount() // the next turn repeats it
	}
	s.starved = true
}

// sendCount says which message was the last, and asks for an acknowledgement. mu is held.
func (s *Session) sendCount() error {
	f := s.newFrame()
	h := wire.Header{Kind: wire.KindAck, Flags: wire.FlagAckNow, Sequence: s.seq}
	done, err := s.post(f, &h, nil)
	if done {
		s.dropFrame(f)
	}
	return err
}

// checkCount holds what a peer says to have sent against what came. Driver only.
func (s *Session) checkCount(h *wire.Header) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Sequence <= s.received {
		return nil
	}
	return &stepvan.ProtocolError{Field: "sequence", Reason: fmt.Sprintf("%d messages were sent, and %d of them came", h.Sequence, s.received)}
}
