package worker

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/trace"
)

// responses handles the two channels of responses. All calls come from the
// driver, one at a time.
type responses struct{ w *Worker }

// Opened implements link.Handler.
func (r responses) Opened(s *link.Session) error {
	r.w.opened(s)
	return nil
}

// Place has the payload read straight into the pull tensors. The payload of an
// answer that nobody waits for any more goes to pooled memory and is dropped.
func (r responses) Place(m *link.Inbound, dst [][]byte) ([][]byte, error) {
	w := r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	p, err := w.check(m, m.Meta)
	if err != nil {
		return dst, err
	}
	m.User = p
	p.read()
	if p.call.finished {
		return dst, nil
	}
	p.place()
	for i, k := range p.pulls {
		if d := &w.answer.Pulls[i]; d.Flags&wire.DescInPlace == 0 {
			dst = append(dst, p.call.pull[k].Bytes()[:d.Bytes])
		}
	}
	p.note(&w.answer)
	return dst, nil
}

// Receive implements link.Receiver: a small response in one go.
func (r responses) Receive(m *link.Inbound, meta, payload []byte) (kept bool) {
	w := r.w
	now := trace.Now()
	w.mu.Lock()
	p, err := w.check(m, meta)
	if err == nil {
		if !p.call.finished {
			p.take(w.answer.Pulls, payload)
			p.note(&w.answer)
		}
		p.stamps[trace.ResponsePostRecv], p.stamps[trace.ResponseProcess] = m.Received, now
		w.answered(p)
	}
	w.mu.Unlock()
	if err != nil {
		w.breakOff(m.Session, err)
	}
	return false
}

// Deliver completes the part that the response answers.
func (r responses) Deliver(m *link.Inbound) {
	w := r.w
	now := trace.Now()
	w.mu.Lock()
	p, err := w.arrived(m)
	switch {
	case err == nil:
		p.stamps[trace.ResponsePostRecv], p.stamps[trace.ResponseProcess] = m.Received, now
		w.answered(p)
	case p != nil:
		w.settle(p.call)
	}
	w.mu.Unlock()
	session := m.Session
	m.ReleaseHere()
	if err != nil {
		w.breakOff(session, err)
	}
}

// Abort ends a response whose server was lost before all of it was there.
func (r responses) Abort(m *link.Inbound, _ error) {
	w := r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := m.User.(*part); ok {
		p.endRead()
		w.settle(p.call)
	}
}

// Lost implements link.Handler.
func (r responses) Lost(s *link.Session, err error) { r.w.lose(s, err) }

// arrived finds the part of a whole message and takes what the response says.
// An error is a server that does not speak the protocol; settle follows then, too, when there is a part.
func (w *Worker) arrived(m *link.Inbound) (*part, error) {
	if p, ok := m.User.(*part); ok {
		p.endRead()
		return p, m.Refused
	}
	if m.Refused != nil {
		return nil, m.Refused
	}
	p, err := w.check(m, m.Meta)
	if err != nil {
		return nil, err
	}
	if m.Header.Flags&wire.FlagError != 0 {
		p.call.fail(p.server.failure(fmt.Errorf("%w: %s", stepvan.ErrRemote, wire.Text(m.Meta))))
	} else {
		p.note(&w.answer)
	}
	return p, nil
}

// check finds the part that m, with this meta, answers, decodes the answer into w.answer and
// holds it against what was asked. Under w.mu.
func (w *Worker) check(m *link.Inbound, meta []byte) (*part, error) {
	h := &m.Header
	p := w.part(h.Request)
	if p == nil || p.server.session != m.Session || p.answered || p.reading {
		return nil, &stepvan.ProtocolError{Field: "request", Reason: fmt.Sprintf("a response to %#x, which is no unanswered request", h.Request)}
	}
	if h.Flags&wire.FlagError != 0 {
		if h.Total != 0 {
			return nil, &stepvan.ProtocolError{Field: "total", Reason: "an error with payload"}
		}
		return p, nil
	}
	if err := w.answer.Decode(h, meta); err != nil {
		return nil, err
	}
	return p, p.fits(w.answer.Pulls)
}
