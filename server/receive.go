package server

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// receiver handles the channel of requests. All calls come from the driver, one
// at a time.
type receiver struct{ s *Server }

// Opened implements link.Handler.
func (r receiver) Opened(session *link.Session) error {
	r.s.opened(session)
	return nil
}

// Place says where the pushes go.
func (r receiver) Place(m *link.Inbound, dst [][]byte) ([][]byte, error) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	in, err := s.accept(m, m.Meta)
	if err != nil {
		return dst, err
	}
	m.User = in
	for i := range in.pushes {
		if b := in.pushes[i].Bytes(); len(b) > 0 && in.meta.Pushes[i].Flags&wire.DescInPlace == 0 {
			dst = append(dst, b)
		}
	}
	return dst, nil
}

// Deliver queues a request that is whole, and tells the worker about one that was refused.
func (r receiver) Deliver(m *link.Inbound) {
	s := r.s
	if m.Header.Op == wire.OpFence {
		s.fenced(m)
		return
	}
	s.mu.Lock()
	in, _ := m.User.(*incoming)
	err := m.Refused
	switch {
	case in != nil && s.closed:
		err = errClosed("push_pull")
		s.recycle(in)
	case in != nil && err != nil:
		s.recycle(in) // the link could not use the placement
	case err == nil && in == nil:
		in, err = s.accept(m, m.Meta) // a message without payload, or that the worker has written, was not placed
	}
	if kept := s.received(m, in, err); !kept {
		m.ReleaseHere()
	}
}

// Receive implements link.Receiver: a small request in one go.
func (r receiver) Receive(m *link.Inbound, meta, payload []byte) (kept bool) {
	s := r.s
	s.mu.Lock()
	in, err := s.accept(m, meta)
	if err == nil {
		in.take(payload)
	}
	return s.received(m, in, err)
}

// take copies the payload of a request to where the pushes go.
func (in *incoming) take(payload []byte) {
	for i := range in.pushes {
		if d := &in.meta.Pushes[i]; d.Flags&wire.DescInPlace == 0 {
			copy(in.pushes[i].Bytes(), payload[:d.Bytes])
			payload = payload[d.Bytes:]
		}
	}
}

// received queues a request that is whole, or refuses it for err. It gives up s.mu, and reports whether the
// request keeps m.
func (s *Server) received(m *link.Inbound, in *incoming, err error) (kept bool) {
	if err != nil {
		from := s.sessions[m.Session]
		wake, err := s.queueRefusal(from, m, err)
		s.mu.Unlock()
		s.refuse(from, m.Session, m.Header.Request, err)
		if wake {
			s.node.Engine().Set(&s.arrival)
		}
		return false
	}
	in.received = m.Received
	in.stage = queued
	if kept = in.pool != nil; kept {
		in.held = m
	}
	s.push(in.from, in)
	wake := s.ready >= s.wanted
	from, post := in.from, len(in.from.outbox) > 0
	s.mu.Unlock()
	if post {
		s.pump(from)
	}
	if wake {
		s.node.Engine().Set(&s.arrival)
	}
	return kept
}

// Abort forgets a request that its worker did not live to send.
func (r receiver) Abort(m *link.Inbound, _ error) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if in, ok := m.User.(*incoming); ok {
		s.recycle(in)
	}
}

// Lost implements link.Handler.
func (r receiver) Lost(session *link.Session, err error) { r.s.lose(session, err) }

// refuse tells the worker why its request was not taken. One that does not speak the protocol is cut off.
func (s *Server) refuse(from *remote, session *link.Session, id uint64, err error) {
	var broken *stepvan.ProtocolError
	if errors.As(err, &broken) {
		s.breakOff(session, err)
		return
	}
	if from == nil {
		return // lost meanwhile
	}
	s.opt.Log.Warn().Err(err).Str("peer", from.name).Msg("refused a request")
	s.tell(from, id, err)
}
