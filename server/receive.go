package server

import (
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// receiver handles the channel of requests. The driver makes all calls, one at a time.
type receiver struct{ s *Server }

// Opened implements link.Handler.
func (r receiver) Opened(session *link.Session) error {
	r.s.openSession(session)
	return nil
}

// Lost implements link.Handler.
func (r receiver) Lost(session *link.Session, err error) { r.s.endSession(session, err) }

// Place tells the link which memory the pushes go to.
func (r receiver) Place(m *link.Inbound, dst [][]byte) ([][]byte, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	req, err := r.accept(m)
	if err != nil {
		return dst, err
	}
	m.User = req
	for i := range req.pushes {
		if b := req.pushes[i].Bytes(); len(b) > 0 && formOf(m, &req.meta.Pushes[i]) == sent {
			dst = append(dst, b)
		}
	}
	return dst, nil
}

// Receive queues a request, or refuses it.
func (r receiver) Receive(m *link.Inbound) (kept bool) {
	s := r.s
	if m.Header.Op == wire.OpFence {
		r.fence(m)
		return false
	}
	s.mu.Lock()
	req, err := r.whole(m)
	a := r.enqueue(m, req, err)
	s.mu.Unlock()
	a.finish(s, m)
	return a.kept
}

// whole returns the request of a whole message. Its pushes have all their bytes. Under Server.mu.
func (r receiver) whole(m *link.Inbound) (*requestSlot, error) {
	req, placed := m.User.(*requestSlot)
	err := m.Refused
	switch {
	case placed && err == nil && r.s.closed:
		err = errClosed("push_pull")
	case !placed && err == nil:
		if req, err = r.accept(m); err == nil {
			req.copyPayload(m)
		}
	}
	if placed && err != nil {
		r.s.requests.recycle(req) // the link could not use the placement, or the server was closed
	}
	return req, err
}

// Abort drops a request whose session was lost before all of it came.
func (r receiver) Abort(m *link.Inbound, _ error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if req, ok := m.User.(*requestSlot); ok {
		r.s.requests.recycle(req)
	}
}

// fence notes that a worker writes no more into the grants that it was told to leave.
func (r receiver) fence(m *link.Inbound) {
	if err := wire.CheckFence(&m.Header); err != nil {
		r.s.breakOff(m.Session, err)
		return
	}
	var later deferredWork
	r.s.mu.Lock()
	r.s.buffers.reclaim(m.Session, m.Header.Generation, &later)
	r.s.mu.Unlock()
	later.run(r.s)
}

// copyPayload copies what the van has kept of the payload to its pushes.
func (r *requestSlot) copyPayload(m *link.Inbound) {
	payload := m.Payload
	for i := range r.pushes {
		if d := &r.meta.Pushes[i]; formOf(m, d) == sent {
			copy(r.pushes[i].Bytes(), payload[:d.Bytes])
			payload = payload[d.Bytes:]
		}
	}
}

// receipt is what follows the receipt of a request without Server.mu. The hot path has this in place of deferredWork,
// which is larger.
type receipt struct {
	from    *workerPeer
	refusal error // why the request was refused; nil: it was not
	kept    bool  // the request keeps the message
	flush   bool  // from's outbox has something to send
	wake    bool  // GetBatch may have waited for it
}

// enqueue queues a complete request, or refuses it because of err. Under Server.mu; finish follows without it.
func (r receiver) enqueue(m *link.Inbound, req *requestSlot, err error) receipt {
	s := r.s
	if err != nil {
		return r.refuse(m, err)
	}
	req.received = m.Received
	req.on(eventComplete)
	kept := req.pool != nil
	if kept {
		req.held = m
	}
	s.batches.push(req)
	return receipt{from: req.from, kept: kept, flush: len(req.from.outbox) > 0, wake: s.batches.enough()}
}

// refuse queues the error for the worker. Under Server.mu.
func (r receiver) refuse(m *link.Inbound, err error) receipt {
	a := receipt{from: r.s.sessions[m.Session]}
	a.wake, a.refusal = r.s.batches.queueRefusal(a.from, m, err)
	if a.from != nil && !isProtocolError(a.refusal) {
		r.s.messages.queueError(a.from, m.Header.Request, a.refusal)
		a.flush = true
	}
	return a
}

// finish sends and wakes. The caller does not hold Server.mu.
func (a *receipt) finish(s *Server, m *link.Inbound) {
	switch {
	case a.refusal == nil:
	case isProtocolError(a.refusal):
		s.breakOff(m.Session, a.refusal)
	case a.from != nil:
		s.opt.Log.Warn().Err(a.refusal).Str("peer", a.from.name).Msg("refused a request")
	}
	if a.flush {
		s.messages.flush(a.from)
	}
	if a.wake {
		s.transport.Engine().Set(&s.batches.arrival)
	}
}

// isProtocolError reports whether err costs the worker its session.
func isProtocolError(err error) bool {
	var broken *stepvan.ProtocolError
	return errors.As(err, &broken)
}

// breakOff ends the session with a worker that has broken the protocol.
func (s *Server) breakOff(session *link.Session, err error) {
	s.endSession(session, fmt.Errorf("%w: %w", stepvan.ErrPeerLost, err))
	session.BreakOff(err.Error()) // this server has lost it in any case
}
