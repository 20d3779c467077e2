package link

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// receiver is the receiving side of a session. Driver only.
type receiver struct {
	session  *Session
	incoming [Channels]queue[Inbound] // messages that are placed and not whole, oldest first
	writing  [Channels]*Inbound       // a message that the peer writes, and that is not whole
	charged  uint64                   // what accepted messages took of the window that this side grants, ever
}

// onMessage takes a message of the peer.
func (x *receiver) onMessage(d *van.Delivery) error {
	h, s := &d.Header, x.session
	switch h.Kind {
	case wire.KindHello, wire.KindWelcome, wire.KindRefuse:
		return s.opening.onMessage(h, d.Meta)
	}
	if !s.opening.phase.open() {
		return &stepvan.ProtocolError{Field: "kind", Reason: "message before the handshake"}
	}
	if h.Incarnation != s.peer.Incarnation {
		return &stepvan.ProtocolError{Field: "incarnation", Reason: fmt.Sprintf("%d, the peer introduced itself as %d", h.Incarnation, s.peer.Incarnation)}
	}
	s.opening.answered()
	if h.Kind == wire.KindData {
		if err := x.checkData(h); err != nil {
			return err
		}
	}
	if err := x.onReport(h); err != nil {
		return err
	}
	switch h.Kind {
	case wire.KindGoodbye:
		s.onGoodbye(wire.Text(d.Meta))
		return nil
	case wire.KindData:
		return x.onData(d)
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
	s.acks.wanted.Store(true)
	s.mu.Lock()
	err := s.out.sendOwn(wire.KindAck, 0, nil)
	s.mu.Unlock()
	if err != nil {
		s.acks.schedule()
	}
}

// onReport takes what a header says of the session: acknowledgement, credit, and the place of a message in the
// sequence.
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
	callCompleters(done, nil)
	return err
}

// checkSequence finds messages that are missing or come twice. Session.mu is held.
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
		return &stepvan.ProtocolError{Field: "channel", Reason: fmt.Sprintf("nobody serves channel %d here", h.Channel)}
	}
	if h.Payload == 0 && h.Total != 0 {
		return &stepvan.ProtocolError{Field: "payload", Reason: "empty piece"}
	}
	return nil
}

// onData takes a message of a channel, or a piece of one.
func (x *receiver) onData(d *van.Delivery) error {
	h, s := &d.Header, x.session
	if h.Total > 0 && s.acks.wanted.Load() {
		s.acks.wanted.Store(false)
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

// onWrittenPiece takes a piece that the peer has written into granted memory. Pieces that were placed may wait in the
// queue already, although they were sent later. So only the order of the deliveries shows whether messages are mixed
// up.
func (x *receiver) onWrittenPiece(d *van.Delivery) error {
	h := &d.Header
	m := x.writing[h.Channel]
	if !d.Written || len(d.Payload) > 0 || (m == nil) != (h.Offset == 0) || x.begun(h.Channel) {
		return errNotContinued
	}
	if m == nil {
		if err := x.takeCredit(h); err != nil {
			return err
		}
		m = x.session.transport.inbounds.takePiece(x.session, h, d.Meta)
		x.writing[h.Channel] = m
	}
	if m.got != h.Offset || m.Header.Total != h.Total {
		return errNotContinued
	}
	m.Written += h.Payload
	if m.got += h.Payload; m.got == h.Total {
		x.writing[h.Channel] = nil
		x.deliver(m)
	}
	return nil
}

var errNotContinued = &stepvan.ProtocolError{Field: "offset", Reason: "a piece does not continue its message"}

// deliver hands a whole message to its handler.
func (x *receiver) deliver(m *Inbound) {
	m.Received = now()
	if !x.session.transport.handlers[m.Header.Channel].Receive(m) {
		m.releaseHere()
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
