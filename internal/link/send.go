package link

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// LockedBytes is the largest payload for which callers of SendAll keep a lock of their own. Sending it takes less time
// than releasing the lock and taking it again.
const LockedBytes = 16 << 10

// briefBytes is the largest payload that takes too little time to look like an absence of the program. Sending it takes
// some 10 us, and the engine counts an absence from 40 us. The limit saves two clock reads per message.
const briefBytes = 64 << 10

var errQueueFull = fmt.Errorf("too many messages wait for this peer: %w", stepvan.ErrWouldBlock)

// Send accepts o, or returns an error without effect. The error is stepvan.ErrWouldBlock when too many messages wait
// for room, and stepvan.ErrInvalid when o exceeds a limit. After the end it is stepvan.ErrPeerLost, ErrLeft or
// stepvan.ErrClosed. Send never blocks, and does not allocate. It sends what the van takes at once on the caller's
// goroutine.
func (s *Session) Send(o *Outbound) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.out.prepare(o, 0); err != nil {
		return err
	}
	long := o.total > briefBytes
	if long {
		s.transport.engine.BeginCall()
	}
	if !s.out.sendAlone(o) {
		s.out.enqueue(o)
		s.out.pump()
		s.out.copyToSpare()
	}
	if long {
		s.transport.engine.EndCall()
	}
	return nil
}

// SendAll sends os[i] on ss[i]. All are accepted, or none. It does not allocate.
func (t *Transport) SendAll(ss []*Session, os []*Outbound) error {
	if len(ss) != len(os) {
		return errs.Invalid("%d messages for %d sessions", len(os), len(ss))
	}
	if len(ss) == 1 {
		return ss[0].Send(os[0])
	}
	spare := false
	for _, o := range os {
		spare = spare || o.Spare != nil
	}
	if err := t.enqueueAll(ss, os); err != nil {
		return err
	}
	t.engine.BeginCall()
	for _, s := range ss {
		s.mu.Lock()
		s.out.pump()
		s.mu.Unlock()
	}
	if spare { // after all have begun: copying what is left of one delays no other
		for _, s := range ss {
			s.mu.Lock()
			s.out.copyToSpare()
			s.mu.Unlock()
		}
	}
	t.engine.EndCall()
	return nil
}

// enqueueAll holds the locks of all sessions together. Only one caller per transport does so at a time, so that no two
// wait for each other. A session may be named more than once.
// +checklocksignore: the number of locks is not known before.
func (t *Transport) enqueueAll(ss []*Session, os []*Outbound) error {
	t.sendAllMu.Lock()
	defer t.sendAllMu.Unlock()
	var err error
	locked := 0
	for i, s := range ss {
		if count(ss[:i], s) == 0 {
			s.mu.Lock()
		}
		locked++
		if err = s.out.prepare(os[i], count(ss[:i], s)); err != nil {
			break
		}
	}
	for i, s := range ss[:locked] {
		if err == nil {
			s.out.enqueue(os[i])
		}
	}
	for i, s := range ss[:locked] {
		if count(ss[:i], s) == 0 {
			s.mu.Unlock()
		}
	}
	return err
}

// count returns how often s is among ss.
func count(ss []*Session, s *Session) (n int) {
	for i := range ss {
		if ss[i] == s {
			n++
		}
	}
	return n
}
