package link

import (
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// receiver is the receiving side of a session. Driver only.
type receiver struct {
	session  *Session
	charged  uint64                   // what accepted messages took of the window that this side grants, ever
	incoming [Channels]queue[Inbound] // messages that are placed and not whole, oldest first
	writing  [Channels]*Inbound       // a message that the peer writes, and that is not whole
}

// onFrame takes a message, unless the session is over.
func (s *Session) onFrame(d *van.Delivery) {
	if d.Header.Payload > briefBytes {
		s.transport.engine.NoteDelay()
	}
	var err error
	switch {
	case s.lost:
	case s.opening.phase == phaseRefused:
		err = &stepvan.ProtocolError{Field: "kind", Reason: "message after a refusal"}
	default:
		err = s.in.onFrame(d)
	}
	d.Release()
	if err != nil {
		s.fail(err)
	}
}

// onFrame takes a message of the peer.
func (x *receiver) onFrame(d *van.Delivery) error {
	h := &d.Header
	if h.Kind != wire.KindData {
		return x.onOwn(d)
	}
	if err := x.checkPeer(h); err != nil {
		return err
	}
	if err := x.checkData(h); err != nil {
		return err
	}
	if err := x.onReport(h); err != nil {
		return err
	}
	return x.onData(d)
}

// checkPeer refuses a message before the handshake, and one of another life of the peer.
func (x *receiver) checkPeer(h *wire.Header) error {
	if x.session.opening.phase == phaseAnswered && h.Incarnation == x.session.peer.Incarnation {
		return nil
	}
	return x.checkNewPeer(h)
}

// checkNewPeer is checkPeer for the first message after the handshake, and for one that is refused.
func (x *receiver) checkNewPeer(h *wire.Header) error {
	s := x.session
	if !s.opening.phase.open() {
		return &stepvan.ProtocolError{Field: "kind", Reason: "message before the handshake"}
	}
	if h.Incarnation != s.peer.Incarnation {
		return &stepvan.ProtocolError{Field: "incarnation", Reason: fmt.Sprintf("%d, the peer introduced itself as %d", h.Incarnation, s.peer.Incarnation)}
	}
	s.opening.answered()
	return nil
}

// onReport checks the sequence of a frame and counts it as received, and takes the acknowledgement and the credit in
// its header.
func (x *receiver) onReport(h *wire.Header) error {
	s := x.session
	if h.Ack == s.out.peerAck && h.Credit == s.out.credit.freed && h.Kind != wire.KindData {
		return nil
	}
	var done queue[Outbound]
	s.mu.Lock()
	err := x.checkSequence(h)
	if err == nil {
		err = s.out.checkReport(h)
	}
	if err == nil {
		if h.Kind == wire.KindData {
			s.acks.received++
		}
		s.out.acknowledge(h, &done)
	}
	s.mu.Unlock()
	s.transport.late.complete(done)
	return err
}

// checkSequence finds frames that are missing or come twice. Session.mu is held.
func (x *receiver) checkSequence(h *wire.Header) error {
	if want := x.session.acks.received + 1; h.Kind == wire.KindData && h.Sequence != want {
		return &stepvan.ProtocolError{Field: "sequence", Reason: fmt.Sprintf("%d, expected %d", h.Sequence, want)}
	}
	return nil
}

// checkCount compares the number of messages that the peer has sent with those that came.
func (x *receiver) checkCount(h *wire.Header) error {
	s := x.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Sequence <= s.acks.received {
		return nil
	}
	return &stepvan.ProtocolError{Field: "sequence", Reason: fmt.Sprintf("%d messages were sent, and %d of them came", h.Sequence, s.acks.received)}
}

func (x *receiver) checkData(h *wire.Header) error {
	if h.Channel >= Channels || x.session.transport.handlers[h.Channel] == nil {
		return errNoChannel(h.Channel)
	}
	if h.Payload == 0 && h.Total != 0 {
		return errEmptyPiece
	}
	return nil
}

var errEmptyPiece = &stepvan.ProtocolError{Field: "payload", Reason: "empty piece"}

func errNoChannel(c wire.Channel) error {
	return &stepvan.ProtocolError{Field: "channel", Reason: fmt.Sprintf("nobody serves channel %d here", c)}
}

// onData takes a message of a channel, or a piece of one.
func (x *receiver) onData(d *van.Delivery) error {
	h, s := &d.Header, x.session
	if h.Total > 0 && s.acks.creditWanted.Load() {
		s.acks.creditWanted.Store(false)
	}
	var err error
	switch placed := h.Payload > 0 && d.Payload == nil && !d.Written; {
	case placed:
		err = x.onPlaced(h)
	case h.Payload == h.Total:
		err = x.onWhole(d)
	default:
		err = x.onWrittenPiece(d)
	}
	if err == nil {
		s.acks.owe(h.Flags, h.Offset+h.Payload == h.Total)
	}
	return err
}

// onPlaced takes a piece that the van has read to where receiver.place said.
func (x *receiver) onPlaced(h *wire.Header) error {
	q := &x.incoming[h.Channel]
	m := q.first()
	if m == nil || x.writing[h.Channel] != nil {
		return &stepvan.ProtocolError{Field: "offset", Reason: "piece without a beginning"}
	}
	if m.got += h.Payload; m.got == h.Total {
		q.pop()
		x.deliver(m)
	}
	return nil
}

// onWhole takes a message that comes at once. It has no payload, or the van has kept some of it and the peer has
// written the rest.
func (x *receiver) onWhole(d *van.Delivery) error {
	h := &d.Header
	if h.Total > 0 {
		if uint64(len(d.Payload)) > h.Total {
			return &stepvan.ProtocolError{Field: "payload", Reason: "more payload than the message has"}
		}
		if x.writing[h.Channel] != nil || x.begun(h.Channel) {
			return &stepvan.ProtocolError{Field: "offset", Reason: "a message begins inside another one"}
		}
		if err := x.takeCredit(h); err != nil {
			return err
		}
	}
	m := x.session.transport.inbounds.take(x.session, h)
	m.Meta, m.Payload = d.Meta, d.Payload
	if d.Written {
		m.Written = h.Total - uint64(len(d.Payload))
	}
	x.deliver(m)
	return nil
}

// begun reports whether a message of ch has come in part. Messages without a piece in the queue were sent later than
// one that comes now, although the van has placed them already.
func (x *receiver) begun(ch wire.Channel) bool {
	m := x.incoming[ch].first()
	return m != nil && m.got > 0
}

// onWrittenPiece takes a piece that the peer has written into granted memory, except for what has travelled with its
// head. Pieces that were placed may wait in the queue already, although they were sent later. So only the order of the
// deliveries shows whether messages are mixed up.
func (x *receiver) onWrittenPiece(d *van.Delivery) error {
	h := &d.Header
	m := x.writing[h.Channel]
	if !d.Written || uint64(len(d.Payload)) > h.Payload || (m == nil) != (h.Offset == 0) || x.begun(h.Channel) {
		return errNotContinued
	}
	if m == nil {
		if err := x.takeCredit(h); err != nil {
			return err
		}
		m = x.session.transport.inbounds.takeFirst(x.session, h, d.Meta)
		x.writing[h.Channel] = m
	}
	if m.got != h.Offset || m.Header.Total != h.Total {
		return errNotContinued
	}
	if len(d.Payload) > 0 {
		if int64(len(m.along)+len(d.Payload)) > x.session.caps.InMessage {
			return errTooMuchAlong
		}
		m.along = append(m.along, d.Payload...)
		m.Payload = m.along
	}
	m.Written += h.Payload - uint64(len(d.Payload))
	if m.got += h.Payload; m.got == h.Total {
		x.writing[h.Channel] = nil
		x.deliver(m)
	}
	return nil
}

var errTooMuchAlong = &stepvan.ProtocolError{Field: "payload", Reason: "more payload travels with the heads of a message than the van takes"}

var errNotContinued = &stepvan.ProtocolError{Field: "offset", Reason: "a piece does not continue its message"}

// deliver hands a whole message to its handler.
func (x *receiver) deliver(m *Inbound) {
	m.Received = now()
	if !x.session.transport.handlers[m.Header.Channel].Receive(m) {
		m.releaseHere()
	}
}

// onOwn takes a message of the link itself.
func (x *receiver) onOwn(d *van.Delivery) error {
	h, s := &d.Header, x.session
	if h.Total > 0 {
		return &stepvan.ProtocolError{Field: "payload", Reason: "payload outside of a message of a channel"}
	}
	switch h.Kind {
	case wire.KindHello, wire.KindWelcome, wire.KindRefuse:
		return s.opening.onMessage(h, d.Meta)
	}
	if err := x.checkPeer(h); err != nil {
		return err
	}
	if err := x.onReport(h); err != nil {
		return err
	}
	if h.Kind == wire.KindGoodbye {
		s.onGoodbye(wire.Text(d.Meta))
		return nil
	}
	if h.Sequence != 0 {
		if err := x.checkCount(h); err != nil {
			return err
		}
	}
	if h.Flags&wire.FlagAckNow != 0 {
		x.answerNow()
	}
	return nil
}

// answerNow acknowledges at once, as the peer has asked.
func (x *receiver) answerNow() {
	s := x.session
	s.acks.creditWanted.Store(true)
	s.mu.Lock()
	err := s.out.sendOwn(wire.KindAck, 0, nil)
	s.mu.Unlock()
	if err != nil {
		s.acks.schedule()
	}
}

// takeCredit holds the peer to its window: it may not send what it has no credit for.
func (x *receiver) takeCredit(h *wire.Header) error {
	if !credited(h.Channel) {
		return nil
	}
	window := uint64(x.session.transport.options.CreditBytes)
	x.charged += charge(h.Total, window)
	if x.charged-x.session.acks.released.Load() > window {
		return &stepvan.ProtocolError{Field: "total", Reason: "more unreleased payload than the peer has credit for"}
	}
	return nil
}

// abort takes back what is not whole when the session is lost.
func (x *receiver) abort(err error) {
	t := x.session.transport
	for c := range x.incoming {
		if m := x.writing[c]; m != nil {
			x.writing[c] = nil
			t.inbounds.put(m)
		}
		for q := &x.incoming[c]; !q.empty(); {
			m := q.pop()
			t.handlers[c].Abort(m, err)
			t.inbounds.put(m)
		}
	}
}

// placer is the transport as its vans see it.
type placer Transport

// Place implements van.Placer.
func (x *placer) Place(ep van.Endpoint, h *wire.Header, meta []byte, dst [][]byte) (_ [][]byte, err error) {
	defer x.recoverPlacement(&err)
	s, _ := ep.User().(*Session)
	if s == nil || !s.opening.phase.open() || s.lost || h.Kind != wire.KindData {
		return nil, &stepvan.ProtocolError{Field: "payload", Reason: "payload outside of a message of an open session"}
	}
	return s.in.place(h, meta, dst)
}

// place appends to dst the destinations of a piece that the van is about to read.
func (x *receiver) place(h *wire.Header, meta []byte, dst [][]byte) ([][]byte, error) {
	if err := x.checkData(h); err != nil {
		return nil, err
	}
	q := &x.incoming[h.Channel]
	m := q.last()
	if h.Offset == 0 {
		if m != nil && m.placed < m.Header.Total {
			return nil, &stepvan.ProtocolError{Field: "offset", Reason: "a message begins inside another one"}
		}
		if err := x.takeCredit(h); err != nil {
			return nil, err
		}
		m = x.session.transport.inbounds.takeFirst(x.session, h, meta)
		q.push(m, &m.link)
		if err := x.choosePlace(m); err != nil {
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

// choosePlace asks the handler for the memory of m, and takes pooled memory where the handler leaves that to the link.
func (x *receiver) choosePlace(m *Inbound) error {
	t := x.session.transport
	dst, err := t.handlers[m.Header.Channel].Place(m, m.dst)
	if err != nil && isProtocol(err) {
		return err
	}
	if err == nil && len(dst) == 0 {
		dst, err = t.inbounds.placePooled(m, dst)
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
