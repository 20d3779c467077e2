package link

import (
	"container/list"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// opening is how a session begins, and which handlers know it. Driver only.
type opening struct {
	phase    phase
	session  *Session
	accepted int           // handlers that have accepted the session, and not been told its loss
	toDetach int           // handlers that have been told the loss, and not that the peer is detached
	timer    *time.Timer   // ends a handshake that takes too long; nil for a session that was dialled
	group    *visitors     // that the session is among; nil when the peer is known
	place    *list.Element // in group
	refused  error         // why this side has refused the peer
}

// phase is how far the handshake has come. It only rises: a session that is refused is never answered.
type phase uint8

const (
	phaseIntroducing phase = iota // Hello or Welcome is outstanding
	phaseOpen                     // both sides have introduced themselves
	phaseAnswered                 // and the peer has sent something after that
	phaseRefused                  // this side has refused the peer, and reads nothing more
)

// open reports whether the handshake has succeeded. It stays true when the session is lost.
func (p phase) open() bool { return p == phaseOpen || p == phaseAnswered }

// accept begins the session of a peer that connected. Driver only.
func (t *Transport) accept(v *polledVan, ep van.Endpoint) {
	s := t.newSession(v, ep, false)
	ep.SetUser(s)
	s.opening.timer = time.AfterFunc(handshakeTime, func() {
		t.endLater(s, fmt.Errorf("%w: no introduction within %v", stepvan.ErrPeerLost, handshakeTime))
	})
	t.unknown.add(s)
}

// hello begins the handshake of the side that dialled.
func (x *opening) hello() error {
	s := x.session
	s.mu.Lock()
	defer s.mu.Unlock()
	return x.introduce(wire.KindHello)
}

// introduce sends the identity of this side. Session.mu is held.
func (x *opening) introduce(k wire.Kind) error {
	s := x.session
	id := s.transport.Identity()
	if reason := s.transport.options.Reason; s.dialled && reason != nil {
		id.Reason = reason(s.address, s.passed)
	}
	return s.out.sendOwn(k, 0, appendIdentity(nil, id, uint64(s.transport.options.CreditBytes)))
}

// onMessage takes a message of the handshake.
func (x *opening) onMessage(h *wire.Header, meta []byte) error {
	s := x.session
	if h.Kind == wire.KindRefuse && s.dialled != x.phase.open() {
		_ = s.ep.Close()
		s.lose(&stepvan.OpError{Op: "connect", Van: s.caps.Name, Peer: s.ep.Peer(), Err: fmt.Errorf("%w: %s", stepvan.ErrRemote, wire.Text(meta))})
		return nil
	}
	if h.Kind == wire.KindRefuse || x.phase.open() || s.dialled == (h.Kind == wire.KindHello) {
		return &stepvan.ProtocolError{Field: "kind", Reason: "handshake out of turn"}
	}
	id, credit, err := decodeIdentity(meta)
	if err != nil {
		return err
	}
	s.peer = id
	s.mu.Lock()
	s.out.peerID, s.out.credit.window = id.ID, credit
	s.mu.Unlock()
	if err := x.admit(); err != nil {
		x.refuse(err)
		return nil
	}
	x.open()
	return nil
}

// admit asks Options.Admit and the handlers whether the peer may stay.
func (x *opening) admit() error {
	s, t := x.session, x.session.transport
	if admit := t.options.Admit; admit != nil && !s.dialled {
		if err := admit(s.peer); err != nil {
			return err
		}
	}
	s.mu.Lock()
	if s.state.advance(stateOpen) {
		s.out.held = true // what Opened sends follows the answer
	}
	s.mu.Unlock()
	x.leaveGroup() // a handler may make it a visitor again
	for _, h := range t.handlers {
		if h == nil {
			continue
		}
		if err := h.Opened(s); err != nil {
			return err
		}
		x.accepted++
	}
	return nil
}

// refuse tells the peer why, and ends the session.
func (x *opening) refuse(why error) {
	s, t := x.session, x.session.transport
	x.phase, x.refused = phaseRefused, why
	if x.group == nil && !s.dialled {
		t.unknown.add(s)
	}
	if errors.Is(why, ErrNeedless) {
		t.Log().Debug().Str("peer", s.String()).Err(why).Msg("connection refused")
	} else if t.refusals.Allow() {
		t.Log().Warn().Str("peer", s.String()).Err(why).Msg("connection refused")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.advance(stateClosing)
	s.goodbyeSent = true
	_ = s.out.sendOwn(wire.KindRefuse, 0, wire.AppendText(nil, why.Error()))
	s.endAfterGrace(why)
}

// open ends the handshake with success.
func (x *opening) open() {
	s, t := x.session, x.session.transport
	x.phase = phaseOpen
	x.stopTimer()
	s.mu.Lock()
	if s.dialled {
		s.out.held = false
		// The listener holds its output back until this arrives: payload must not overtake the dispatch of Welcome.
		_ = s.out.sendOwn(wire.KindAck, 0, nil)
	} else {
		_ = x.introduce(wire.KindWelcome)
	}
	s.out.pump()
	s.mu.Unlock()
	if x.group == nil {
		s.keepConnection()
	}
	t.Log().Debug().Str("van", s.caps.Name).Str("peer", s.String()).Bool("dialled", s.dialled).Msg("session opened")
	if t.options.Opened != nil {
		t.options.Opened(s)
	}
	t.engine.Set(&s.ready)
}

// answered notes that the peer has sent something after the handshake, so that this side may send.
func (x *opening) answered() {
	if x.phase != phaseOpen {
		return
	}
	s := x.session
	s.mu.Lock()
	defer s.mu.Unlock()
	x.phase = phaseAnswered // a sender that is not held reads it, under mu
	s.out.held = false
	s.out.pump()
}

func (x *opening) stopTimer() {
	if x.timer != nil {
		x.timer.Stop()
	}
}

// leaveGroup takes the session out of the visitors that it is among, if any.
func (x *opening) leaveGroup() {
	if x.group != nil {
		x.group.list.Remove(x.place)
		x.group, x.place = nil, nil
	}
}
