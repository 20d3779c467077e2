package link

import (
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

func opOf(f *frame) van.OpID { return van.OpID(f.index) }

func (n *Transport) dispatch(v *vanSlot, e *van.Event) {
	if e.Kind == van.EventAccepted {
		n.greet(v, e.Endpoint)
		return
	}
	s, _ := e.Endpoint.User().(*Session)
	if s == nil && (e.Kind != van.EventLost || n.missed(e.Endpoint, e.Err)) {
		if e.Kind == van.EventMessage {
			e.Delivery.Release()
		}
		return // a connection that Dial is about to find broken
	}
	if s == nil {
		s, _ = e.Endpoint.User().(*Session)
	}
	switch e.Kind {
	case van.EventMessage:
		if e.Delivery.Header.Payload > briefBytes {
			n.engine.NoteDelay()
		}
		var err error
		switch {
		case s.gone:
		case s.refused:
			err = &stepvan.ProtocolError{Field: "kind", Reason: "message after a refusal"}
		default:
			err = s.onMessage(e.Delivery)
		}
		e.Delivery.Release()
		if err != nil {
			s.fail(err)
		}
	case van.EventCompletion:
		s.onCompleted(e)
	case van.EventLost:
		n.depart(s, s.lossCause(e.Err))
	case van.EventDetached:
		if n.detachAfterLoss(s) {
			return
		}
		s.lose(s.lossError(stepvan.ErrClosed)) // unless it is
		s.detach()
	}
}

func (s *Session) onCompleted(e *van.Event) {
	if e.Op&opWithdraw != 0 {
		s.onWithdrawn(e.Op, e.Err)
		return
	}
	s.onCompletion(int(e.Op))
	if errors.Is(e.Err, stepvan.ErrStale) && !s.gone {
		s.fail(fmt.Errorf("a grant was withdrawn while a message was being written: %w", e.Err))
	}
}

// lossCause is what the services see as the reason of a loss that the van reported.
func (s *Session) lossCause(err error) error {
	s.mu.Lock()
	parting := s.state == stateClosing
	s.mu.Unlock()
	if s.why != nil {
		return s.lossError(s.why)
	}
	if parting {
		return s.lossError(stepvan.ErrClosed)
	}
	if err == nil || errors.Is(err, stepvan.ErrPeerLost) {
		return s.lossError(cmpErr(err, stepvan.ErrPeerLost))
	}
	return s.lossError(fmt.Errorf("%w: %w", stepvan.ErrPeerLost, err))
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// fail ends a session for what its peer did.
func (s *Session) fail(cause error) {
	_ = s.ep.Close()
	s.lose(s.lossError(fmt.Errorf("%w: %w", stepvan.ErrPeerLost, cause)))
}

func (s *Session) onMessage(d *van.Delivery) error {
	h := &d.Header
	switch h.Kind {
	case wire.KindHello, wire.KindWelcome, wire.KindRefuse:
		return s.onHandshake(h, d.Meta)
	}
	if !s.opened {
		return &stepvan.ProtocolError{Field: "kind", Reason: "message before the handshake"}
	}
	if h.Incarnation != s.peer.Incarnation {
		return &stepvan.ProtocolError{Field: "incarnation", Reason: fmt.Sprintf("%d, the peer introduced itself as %d", h.Incarnation, s.peer.Incarnation)}
	}
	if !s.answered {
		s.answered = true
		s.mu.Lock()
		s.held = false
		s.pump()
		s.mu.Unlock()
	}
	if h.Kind == wire.KindData {
		if err := s.checkData(h); err != nil {
			return err
		}
	}
	if err := s.hear(h); err != nil {
		return err
	}
	switch h.Kind {
	case wire.KindGoodbye:
		s.onGoodbye(wire.Text(d.Meta))
		return nil
	case wire.KindData:
		return s.onData(d)
	}
	if h.Sequence != 0 {
		if err := s.checkCount(h); err != nil {
			return err
		}
	}
	if h.Flags&wire.FlagAckNow != 0 {
		s.peerHungry.Store(true)
		s.mu.Lock()
		err := s.sendOwn(wire.KindAck, 0, nil)
		s.mu.Unlock()
		if err != nil {
			s.listDue()
		}
	}
	return nil
}

// onGoodbye ends a session that its peer has left.
func (s *Session) onGoodbye(reason string) {
	s.tellNow()      // what was delivered must not look lost
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
	s.node.depart(s, s.lossError(cause))
}

func (s *Session) onData(d *van.Delivery) error {
	h := &d.Header
	handler := s.node.handlers[h.Channel]
	if h.Total == 0 {
		m := s.node.take(s, h, d.Meta)
		m.Received = now()
		handler.Deliver(m)
		s.oweAck(h.Flags, true)
		return nil
	}
	if s.peerHungry.Load() {
		s.peerHungry.Store(false)
	}
	if d.Written {
		return s.onWritten(d)
	}
	if d.Payload != nil {
		return s.onKept(d)
	}
	q := &s.incoming[h.Channel]
	m := q.head
	if m == nil || s.writing[h.Channel] != nil {
		return &stepvan.ProtocolError{Field: "offset", Reason: "piece without a beginning"}
	}
	m.got += h.Payload
	if m.got == h.Total {
		q.pop()
		m.Received = now()
		handler.Deliver(m)
	}
	s.oweAck(h.Flags, h.Offset+h.Payload == h.Total)
	return nil
}

// onKept takes a small message that came with its payload.
func (s *Session) onKept(d *van.Delivery) error {
	h := &d.Header
	// Pieces that wait in the queue were sent later, unless one of their message has been delivered.
	if q := s.incoming[h.Channel].head; q != nil && q.got > 0 || s.writing[h.Channel] != nil || h.Payload != h.Total {
		return &stepvan.ProtocolError{Field: "offset", Reason: "a message begins inside another one"}
	}
	if err := s.takeCredit(h); err != nil {
		return err
	}
	handler := s.node.handlers[h.Channel]
	if r, ok := handler.(Receiver); ok {
		m := s.node.borrow(s, h)
		m.Received = now()
		if !r.Receive(m, d.Meta, d.Payload) {
			m.ReleaseHere()
		}
		s.oweAck(h.Flags, true)
		return nil
	}
	m := s.node.take(s, h, d.Meta)
	if err := s.begin(m); err != nil {
		handler.Abort(m, err)
		s.node.recycle(m)
		return err
	}
	if m.Refused == nil {
		rest := d.Payload
		for _, p := range m.dst {
			rest = rest[copy(p, rest):]
		}
	}
	m.Received = now()
	handler.Deliver(m)
	s.oweAck(h.Flags, true)
	return nil
}

// onWritten takes a piece whose payload the peer has written into granted memory. Pieces that
// were placed may wait in the queue already: they were sent later, so only the
// order of the deliveries says whether messages are mixed up.
func (s *Session) onWritten(d *van.Delivery) error {
	h := &d.Header
	m := s.writing[h.Channel]
	if q := s.incoming[h.Channel].head; (m == nil) != (h.Offset == 0) || q != nil && q.got > 0 {
		return &stepvan.ProtocolError{Field: "offset", Reason: "a written piece does not continue its message"}
	}
	if m == nil {
		if err := s.takeCredit(h); err != nil {
			return err
		}
		m = s.node.take(s, h, d.Meta)
		m.Written = true
		s.writing[h.Channel] = m
	}
	if m.got != h.Offset || m.Header.Total != h.Total {
		return &stepvan.ProtocolError{Field: "offset", Reason: "a written piece does not continue its message"}
	}
	m.got += h.Payload
	if m.got == h.Total {
		s.writing[h.Channel] = nil
		m.Received = now()
		s.node.handlers[h.Channel].Deliver(m)
	}
	s.oweAck(h.Flags, h.Offset+h.Payload == h.Total)
	return nil
}

func (s *Session) checkData(h *wire.Header) error {
	if h.Channel >= Channels || s.node.handlers[h.Channel] == nil {
		return &stepvan.ProtocolError{Field: "channel", Reason: fmt.Sprintf("nobody serves channel %d here", h.Channel)}
	}
	if h.Payload == 0 && h.Total != 0 {
		return &stepvan.ProtocolError{Field: "payload", Reason: "empty piece"}
	}
	return nil
}

// Place implements van.Placer.
func (n *Transport) Place(ep van.Endpoint, h *wire.Header, meta []byte, dst [][]byte) (_ [][]byte, err error) {
	defer n.misplaced(&err)
	s, _ := ep.User().(*Session)
	if s == nil || !s.opened || s.gone || h.Kind != wire.KindData {
		return nil, &stepvan.ProtocolError{Field: "payload", Reason: "payload outside of a message of an open session"}
	}
	if err := s.checkData(h); err != nil {
		return nil, err
	}
	q := &s.incoming[h.Channel]
	m := q.tail
	if h.Offset == 0 {
		if m != nil && m.placed < m.Header.Total {
			return nil, &stepvan.ProtocolError{Field: "offset", Reason: "a message begins inside another one"}
		}
		if err := s.takeCredit(h); err != nil {
			return nil, err
		}
		m = n.take(s, h, meta)
		q.push(m)
		if err := s.begin(m); err != nil {
			return nil, err
		}
	} else if m == nil || m.placed != h.Offset || m.Header.Total != h.Total {
		return nil, &stepvan.ProtocolError{Field: "offset", Reason: "piece does not continue its message"}
	}
	if m.Refused != nil {
		m.placed += h.Payload
		return nil, m.Refused
	}
	return m.place(dst, h.Payload), nil
}

// takeCredit holds the peer to its window: it may not send what it has no credit for.
func (s *Session) takeCredit(h *wire.Header) error {
	if !credited(h.Channel) {
		return nil
	}
	window := uint64(s.node.creditBytes)
	s.charged += charge(h.Total, window)
	if s.charged-s.released.Load() > window {
		return &stepvan.ProtocolError{Field: "total", Reason: "more unreleased payload than the peer has credit for"}
	}
	return nil
}

// maxControl bounds a message on a channel without credit.
const maxControl = 64 << 20

// begin asks the handler, or the pool, for the memory of m.
func (s *Session) begin(m *Inbound) error {
	dst, err := s.node.handlers[m.Header.Channel].Place(m, m.dst)
	if err != nil && isProtocol(err) {
		return err
	}
	if err == nil && len(dst) == 0 {
		dst, err = s.node.pool(m, dst)
	}
	if err != nil {
		m.Refused = err
		return nil
	}
	m.dst = dst
	var sum uint64
	for _, p := range dst {
		sum += uint64(len(p))
	}
	if sum != m.Header.Total {
		m.Refused = fmt.Errorf("placement of %d bytes for a message of %d", sum, m.Header.Total)
	}
	return nil
}

func isProtocol(err error) bool {
	var protocol *stepvan.ProtocolError
	return errors.As(err, &protocol)
}

// pool gives m pooled memory.
func (n *Transport) pool(m *Inbound, dst [][]byte) ([][]byte, error) {
	if !credited(m.Header.Channel) && m.Header.Total > maxControl {
		return dst, errs.Invalid("control message of %d bytes, limit %d", m.Header.Total, maxControl)
	}
	r, err := n.memory.Get(int(m.Header.Total))
	if err != nil {
		return dst, fmt.Errorf("no receive memory for %d bytes: %w", m.Header.Total, err)
	}
	m.region = r
	m.Data = r.Bytes()[:m.Header.Total]
	return append(dst, m.Data), nil
}
