package link

import (
	"time"
)

const (
	// partGrace is how long a session that has ended waits for its last words to arrive.
	partGrace = time.Second
	// drainPolls bounds how often a closing node asks its vans for completions.
	drainPolls = 10_000
)

// doom is a session that somebody other than the driver wants to end.
type doom struct {
	session *Session
	cause   error
}

// partAfter ends s when the peer has closed its side, or after a grace: closing at
// once could destroy last words that the peer has not read yet. s.mu is held.
func (n *Transport) partAfter(s *Session, cause error) {
	if s.grace != nil {
		s.grace.Stop()
	}
	s.grace = time.AfterFunc(partGrace, func() { n.end(s, cause) })
}

// end has the driver end s. Any goroutine.
func (n *Transport) end(s *Session, cause error) {
	n.doomMu.Lock()
	n.doomed = append(n.doomed, doom{s, cause})
	n.doomCount.Store(int32(len(n.doomed)))
	n.doomMu.Unlock()
	n.engine.WakeAll()
}

// endDoomed is the driver's part of end.
func (n *Transport) endDoomed() {
	n.doomMu.Lock()
	list := n.doomed
	n.doomed = nil
	n.doomCount.Store(0)
	n.doomMu.Unlock()
	for _, d := range list {
		_ = d.session.ep.Close()
		d.session.lose(d.session.lossError(d.cause))
	}
}

// Close says goodbye to all peers, waits a moment for it to arrive, and ends
// everything: each Outbound is Done, each session Lost. Idempotent; concurrent callers
// return when it is done.
func (n *Transport) Close() error { return n.close(true) }

// Abort is Close without the goodbye: each peer takes this node for dead, as if its process had been killed.
func (n *Transport) Abort() error { return n.close(false) }

func (n *Transport) close(goodbye bool) error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		<-n.done
		return nil
	}
	n.closed = true
	if n.reminder != nil {
		n.reminder.Stop()
	}
	open := make([]*Session, 0, len(n.sessions))
	for s := range n.sessions {
		open = append(open, s)
	}
	if n.settled() {
		close(n.emptied)
	}
	n.mu.Unlock()
	defer close(n.done)
	if goodbye && n.broken.Load() == nil {
		n.part(open)
	}
	n.engine.Close()
	n.finishAll()
	return nil
}

// part says goodbye, and waits a moment for it to arrive.
func (n *Transport) part(open []*Session) {
	for _, s := range open {
		_ = s.Close("")
	}
	grace := time.NewTimer(partGrace)
	defer grace.Stop()
	select {
	case <-n.emptied:
	case <-grace.C:
	}
}

// finishAll runs with the engine's token: nobody else polls any more.
func (n *Transport) finishAll() {
	n.tolerate(n.endDoomed)
	n.refusals.End()
	n.closeVans()
	n.tolerate(n.drain)
	n.tolerate(func() { n.tellLosses() })
	n.mu.Lock()
	left := make([]*Session, 0, len(n.sessions))
	for s := range n.sessions {
		left = append(left, s)
	}
	n.mu.Unlock()
	for _, s := range left {
		n.tolerate(func() { s.lose(n.lastCause(s)) })
	}
	n.tolerate(n.drain) // a Send that crossed with Close may have left completions behind
}

func (n *Transport) drain() {
	for range drainPolls {
		if n.Poll(true) == 0 {
			return
		}
	}
}

func (n *Transport) closeVans() {
	for _, v := range n.vans {
		n.tolerate(func() { _ = v.van.Close() })
	}
}
