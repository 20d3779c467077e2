package worker

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/trace"
)

// responses handles the two channels of responses. The driver makes all calls, one at a time.
type responses struct{ sessionEvents }

// Place has the payload read straight into the pull tensors. When nobody waits for the answer any more, the payload
// goes to pooled memory and is dropped.
func (h responses) Place(m *link.Inbound, dst [][]byte) ([][]byte, error) {
	w := h.w
	w.mu.Lock()
	defer w.mu.Unlock()
	r, err := h.find(m)
	if err != nil {
		return dst, err
	}
	m.User = r
	if r.exchange.state.completed() {
		r.on(beginDiscard)
		return dst, nil
	}
	r.on(beginPlace)
	for i, k := range r.pulls {
		if d := &w.response.Pulls[i]; d.Flags&wire.DescInPlace == 0 {
			dst = append(dst, r.exchange.pull[k].Bytes()[:d.Bytes])
		}
	}
	r.noteResponse(&w.response)
	return dst, nil
}

// Receive ends the request that the response answers.
func (h responses) Receive(m *link.Inbound) (kept bool) {
	w := h.w
	now := trace.Now()
	w.mu.Lock()
	r, err := h.whole(m)
	switch {
	case err == nil:
		r.stamps[trace.ResponsePostRecv], r.stamps[trace.ResponseProcess] = m.Received, now
		w.answered(r)
	case r != nil:
		w.advance(r.exchange)
	}
	w.mu.Unlock()
	if err != nil {
		h.breakOff(m.Session, err)
	}
	return false
}

// Abort ends a response whose server was lost before all of it had come.
func (h responses) Abort(m *link.Inbound, _ error) {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	if r, ok := m.User.(*request); ok {
		r.on(endReceive)
		h.w.advance(r.exchange)
	}
}

// whole finds the request of a whole message, and takes what the response says. An error means that the server does
// not speak the protocol. When there is a request, advance follows all the same. Under Worker.mu.
func (h responses) whole(m *link.Inbound) (*request, error) {
	if r, ok := m.User.(*request); ok {
		r.on(endReceive)
		return r, m.Refused
	}
	if m.Refused != nil {
		return nil, m.Refused
	}
	r, err := h.find(m)
	if err != nil {
		return nil, err
	}
	switch {
	case m.Header.Flags&wire.FlagError != 0:
		r.exchange.fail(r.server.failure(fmt.Errorf("%w: %s", stepvan.ErrRemote, wire.Text(m.Meta))))
	case !r.exchange.state.completed():
		r.copyResponse(h.w.response.Pulls, m.Payload)
		r.noteResponse(&h.w.response)
	}
	return r, nil
}

// find returns the request that m answers. It decodes the answer into Worker.response, and checks
// that it fits the request. Under Worker.mu.
func (h responses) find(m *link.Inbound) (*request, error) {
	header := &m.Header
	r := h.w.exchanges.find(header.Request)
	if r == nil || r.server.session != m.Session || r.state&(unanswered|receiving) != unanswered {
		return nil, &stepvan.ProtocolError{Field: "request", Reason: fmt.Sprintf("a response to request %#x, which waits for none", header.Request)}
	}
	if header.Flags&wire.FlagError != 0 {
		if header.Total != 0 {
			return nil, &stepvan.ProtocolError{Field: "total", Reason: "an error response has payload"}
		}
		return r, nil
	}
	if m.Written > 0 {
		return nil, &stepvan.ProtocolError{Field: "payload", Reason: fmt.Sprintf("%d bytes of an answer are written outside of its pulls", m.Written)}
	}
	if err := h.w.response.Decode(header, m.Meta); err != nil {
		return nil, err
	}
	return r, r.checkResponse(h.w.response.Pulls)
}
