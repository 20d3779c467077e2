package link

import (
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

const (
	// closeGrace is how long a session that has ended waits for its last message to arrive.
	closeGrace = time.Second
	// drainPolls bounds how often a transport that closes asks its vans for completions.
	drainPolls = 10_000
)

// ending is a session that another goroutine than the driver wants to end.
type ending struct {
	session *Session
	cause   error
}

// endAfterGrace ends s when the peer has closed its side, or after a grace. Closing at once could destroy last words
// that the peer has not read yet. mu is held.
func (s *Session) endAfterGrace(cause error) {
	if s.grace != nil {
		s.grace.Stop()
	}
	s.grace = time.AfterFunc(closeGrace, func() { s.transport.endLater(s, cause) })
}

// endLater has the driver end s. Any goroutine.
func (t *Transport) endLater(s *Session, cause error) {
	t.endings.add(ending{s, cause})
	t.engine.WakeAll()
}

// endSessions ends what endLater has listed. A session whose loss is still to be told keeps the error of that loss, and
// its turn. Driver only.
func (x *source) endSessions() {
	list := x.endings.take()
	for _, e := range list {
		_ = e.session.ep.Close()
		if !e.session.lost {
			e.session.lose(e.session.wrap(e.cause))
		}
	}
	x.endings.reuse(list)
}

// Expel ends all sessions with a peer at once, without goodbye: the caller knows by other means that the peer is dead.
// Handler.Lost gets cause, as with [Session.Drop]. Any goroutine.
func (t *Transport) Expel(peer wire.PeerID, cause error) {
	for _, s := range t.sessions.with(peer) {
		t.endLater(s, cause)
	}
}

// Goodbye closes all sessions with a reason that their peers learn. It returns at once. Any goroutine.
func (t *Transport) Goodbye(reason string) { sayGoodbye(t.sessions.list(), reason) }

func sayGoodbye(all []*Session, reason string) {
	for _, s := range all {
		_ = s.Close(reason) // without effect on one that is lost
	}
}

// Close says goodbye to all peers, waits a moment for it to arrive, and ends everything: each Outbound is Done, each
// session Lost. Idempotent; concurrent callers return when it is done.
func (t *Transport) Close() error { return t.close(true) }

// Abort is Close without the goodbye: each peer takes this instance for dead, as if its process had been killed.
func (t *Transport) Abort() error { return t.close(false) }

func (t *Transport) close(goodbye bool) error {
	left, first := t.sessions.close()
	if !first {
		<-t.closeDone
		return nil
	}
	defer close(t.closeDone)
	t.reminder.stop(&t.sessions)
	if goodbye && t.broken.Load() == nil {
		sayGoodbye(left, "")
		grace := time.NewTimer(closeGrace)
		defer grace.Stop()
		select {
		case <-t.sessions.emptied:
		case <-grace.C:
		}
	}
	t.engine.Close()
	t.finish()
	return nil
}

// finish ends everything. It runs with the engine's token: nobody else polls any more.
func (t *Transport) finish() {
	driver := (*source)(t)
	t.ignorePanics(driver.endSessions)
	t.refusals.End()
	t.closeVans()
	t.ignorePanics(driver.drain)
	t.ignorePanics(func() { t.losses.tellAll() })
	for _, s := range t.sessions.list() {
		t.ignorePanics(func() { s.lose(t.lastCause(s)) })
	}
	t.ignorePanics(driver.drain) // a Send that crossed with Close may have left completions behind
	t.ignorePanics(func() {
		if err := t.Registry.Close(); err != nil { // the vans have ended everything that needs it
			t.options.Log.Warn().Err(err).Msg("a device did not give up registered memory")
		}
	})
}

// drain polls until nothing is left.
func (x *source) drain() {
	for range drainPolls {
		if x.Poll(true) == 0 {
			return
		}
	}
}

func (t *Transport) closeVans() {
	for _, v := range t.vans.list {
		t.ignorePanics(func() { _ = v.van.Close() })
	}
}

// lastCause is why a session is lost that was open to the end.
func (t *Transport) lastCause(s *Session) error {
	if cause := t.broken.Load(); cause != nil {
		return *cause
	}
	return s.wrap(stepvan.ErrClosed)
}
