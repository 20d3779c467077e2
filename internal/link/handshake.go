package link

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

// hello begins the handshake of the side that dialled.
func (s *Session) hello() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.introduce(wire.KindHello)
}

// introduce sends this node's identity. mu is held.
func (s *Session) introduce(k wire.Kind) error {
	id := *s.node.identity.Load()
	if s.dialled && s.node.reason != nil {
		id.Reason = s.node.reason(s.address, s.passed)
	}
	return s.sendOwn(k, 0, appendIdentity(nil, id, uint64(s.node.creditBytes)))
}

func (s *Session) onHandshake(h *wire.Header, meta []byte) error {
	if h.Kind == wire.KindRefuse && (s.dialled != s.opened) {
		_ = s.ep.Close()
		s.lose(&stepvan.OpError{Op: "connect", Van: s.caps.Name, Peer: s.ep.Peer(), Err: fmt.Errorf("%w: %s", stepvan.ErrRemote, wire.Text(meta))})
		return nil
	}
	if h.Kind == wire.KindRefuse || s.opened || s.dialled == (h.Kind == wire.KindHello) {
		return &stepvan.ProtocolError{Field: "kind", Reason: "handshake out of turn"}
	}
	id, credit, err := decodeIdentity(meta)
	if err != nil {
		return err
	}
	s.peer = id
	s.mu.Lock()
	s.peerNode, s.window = id.Node, credit
	s.mu.Unlock()
	if err := s.admit(); err != nil {
		s.refuse(err)
		return nil
	}
	s.open()
	return nil
}

// admit asks everybody concerned whether the peer may stay.
func (s *Session) admit() error {
	if admit := s.node.admit; admit != nil && !s.dialled {
		if err := admit(s.peer); err != nil {
			return err
		}
	}
	s.mu.Lock()
	if s.state == stateHandshake {
		s.state, s.held = stateOpen, true // what Opened sends follows the answer
	}
	s.mu.Unlock()
	s.settleDown() // a handler may make it a visitor again
	for _, h := range s.node.handlers {
		if h == nil {
			continue
		}
		if err := h.Opened(s); err != nil {
			return err
		}
		s.greeted++
	}
	return nil
}

// refuse tells the peer why, and ends the session.
func (s *Session) refuse(why error) {
	s.refused, s.why = true, why
	if s.visit == nil && !s.dialled {
		s.node.strangers.add(s)
	}
	if s.node.refusals.Allow() {
		s.node.log.Warn().Str("peer", s.String()).Err(why).Msg("connection refused")
	}
	s.mu.Lock()
	s.state, s.parting = stateClosing, true
	_ = s.sendOwn(wire.KindRefuse, 0, wire.AppendText(nil, why.Error()))
	s.node.partAfter(s, why)
	s.mu.Unlock()
}

func (s *Session) open() {
	s.opened = true
	if s.patience != nil {
		s.patience.Stop()
	}
	s.mu.Lock()
	if s.dialled {
		s.held = false
		_ = s.sendOwn(wire.KindAck, 0, nil) // frees what the listener holds: payload must not overtake the dispatch of Welcome
	} else {
		_ = s.introduce(wire.KindWelcome)
	}
	s.pump()
	s.mu.Unlock()
	if s.visit == nil {
		s.vouch()
	}
	s.node.log.Debug().Str("van", s.caps.Name).Str("peer", s.String()).Bool("dialled", s.dialled).Msg("session opened")
	if s.node.onOpen != nil {
		s.node.onOpen(s)
	}
	s.node.engine.Set(&s.ready)
}
