package link

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
)

// onGoodbye ends a session that its peer has left.
func (s *Session) onGoodbye(reason string) {
	s.acks.send()    // what was delivered must not look lost
	_ = s.ep.Close() // so that nothing more comes
	cause := ErrLeft
	if reason != "" {
		cause = &leftError{reason}
	}
	s.mu.Lock()
	if s.state == stateClosing {
		cause = stepvan.ErrClosed
	}
	s.mu.Unlock()
	s.transport.losses.add(s, s.wrap(cause))
}

// lossCause is what the services see as the reason of a loss that the van reported.
func (s *Session) lossCause(err error) error {
	s.mu.Lock()
	closing := s.state == stateClosing
	s.mu.Unlock()
	if s.opening.refused != nil {
		return s.wrap(s.opening.refused)
	}
	if closing {
		return s.wrap(stepvan.ErrClosed)
	}
	if err == nil || errors.Is(err, stepvan.ErrPeerLost) {
		return s.wrap(cmp.Or(err, stepvan.ErrPeerLost))
	}
	return s.wrap(fmt.Errorf("%w: %w", stepvan.ErrPeerLost, err))
}

// fail ends a session for what its peer did.
func (s *Session) fail(cause error) {
	_ = s.ep.Close()
	s.lose(s.wrap(fmt.Errorf("%w: %w", stepvan.ErrPeerLost, cause)))
}

// lose ends s: everything unfinished fails, and the handlers are told. Driver only; idempotent.
func (s *Session) lose(err error) {
	s.transport.late.run() // the handlers hear of a loss after everything else
	var ended queue[Outbound]
	s.mu.Lock()
	if !s.state.advance(stateLost) {
		s.mu.Unlock()
		return
	}
	s.err = err
	s.out.abandon(&ended)
	s.out.noteStuck()
	if s.grace != nil {
		s.grace.Stop() // it would keep the whole transport in memory
	}
	s.mu.Unlock()
	s.lost = true
	t := s.transport
	if s.tellFirst.Load() {
		t.losses.first.Add(-1)
	}
	s.opening.leaveGroup()
	line := t.Log().Debug().Str("van", s.caps.Name).Str("peer", s.String()).Bool("dialled", s.dialled).AnErr("reason", err)
	c := CountersOf([]*Session{s})[0]
	if c != nil {
		line.Stringer("counters", c)
	}
	line.Msg("session lost")
	if t.options.Lost != nil {
		t.options.Lost(s, c, err)
	}
	s.opening.stopTimer()
	if t.stuck.Load() == 0 {
		t.engine.ClearStuck() // what woke the driver because of s is over
	}
	s.opening.toDetach = s.opening.accepted
	t.sessions.remove(s, s.grants.granter != nil && s.opening.toDetach > 0)
	callCompleters(ended, err)
	s.in.abort(err)
	for _, h := range t.handlers {
		if h != nil && s.opening.accepted > 0 {
			s.opening.accepted--
			h.Lost(s, err)
		}
	}
	if s.grants.granter == nil {
		s.grants.detach()
	}
	t.engine.Set(&s.ready)
}
