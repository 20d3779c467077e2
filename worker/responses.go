package worker

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/slots"
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
		if d := &w.response.Pulls[i]; isInMessage(m, d) {
			dst = append(dst, r.exchange.pull[k].Bytes()[:d.Bytes])
		}
	}
	r.noteLanded(w.response.Pulls, m)
	r.noteResponse(&w.response)
	return dst, nil
}

// Receive ends the request that the response answers.
func (h responses) Receive(m *link.Inbound) (kept bool) {
	w := h.w
	now := trace.Now()
	w.mu.Lock()
	r, err := h.take(m)
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

// take finds the request that m answers, and copies the answer to its pull tensors unless the van has read it there. An
// error means that the server does not speak the protocol. If take returns a request, the caller calls answered or
// advance, also after an error. Under Worker.mu.
func (h responses) take(m *link.Inbound) (*request, error) {
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
		r.copyResponse(h.w.response.Pulls, m)
		r.noteLanded(h.w.response.Pulls, m)
		r.noteResponse(&h.w.response)
	}
	return r, nil
}

// find returns the request that m answers. It decodes the answer into Worker.response, and checks
// that it fits the request. Under Worker.mu.
func (h responses) find(m *link.Inbound) (*request, error) {
	header := &m.Header
	r := h.w.exchanges.requests.Find(slots.ID(header.Request))
	if r == nil || r.server.session != m.Session || r.state&(unanswered|receiving) != unanswered {
		return nil, &stepvan.ProtocolError{Field: "request", Reason: fmt.Sprintf("a response to request %#x, which waits for none", header.Request)}
	}
	if header.Flags&wire.FlagError != 0 {
		if header.Total != 0 {
			return nil, &stepvan.ProtocolError{Field: "total", Reason: "an error response has payload"}
		}
		return r, nil
	}
	if err := h.w.response.Decode(header, m.Meta); err != nil {
		return nil, err
	}
	return r, r.checkResponse(h.w.response.Pulls, m)
}

// answered ends the wait for the server of r. Under Worker.mu.
func (w *Worker) answered(r *request) {
	x := r.exchange
	if r.state&unanswered != 0 { // else the server was lost while its answer was received
		x.last = r
	}
	r.on(answer)
	if x.staged != nil {
		w.staging.landings.begin(r)
	}
	w.advance(x)
}

// advance completes the handle of x, gives its memory and keys back, and ends x, each as soon as the states of its
// requests allow. The caller must not use x afterwards, since it may have ended. Under Worker.mu.
func (w *Worker) advance(x *activeExchange) {
	completes := !x.state.completed() && x.pending&placing == 0 && (x.err != nil || x.pending&(unacknowledged|unanswered) == 0)
	if completes && x.staged != nil && !w.staging.landings.hasLanded(x) {
		return // the answers are on their way to the accelerator
	}
	if completes && len(x.checksums) > 0 {
		x.compareChecksums()
	}
	unused := (x.state.completed() || completes) && x.pending&(unacknowledged|placing|lentOut) == 0
	if unused {
		x.release(&w.lender) // before the handle completes: the program may close the memory at once
	}
	if completes {
		w.complete(x)
	}
	if unused && x.err != nil {
		w.orphans.remove(x)
	}
	if x.pending&unanswered == 0 {
		w.keys.release(x)
	}
	if x.state == finished && x.pending == 0 {
		w.exchanges.end(x)
	}
	if len(w.lender.ended) > 0 {
		w.withdrawEnded()
	}
}

// complete ends the handle of x. Under Worker.mu.
func (w *Worker) complete(x *activeExchange) {
	x.state = x.state.after(finish)
	if x.last == nil {
		x.last = x.requests[0]
	}
	record := x.record
	record.Value.fill(x)
	if w.opt.Trace != nil {
		x.trace(w.opt.Trace, w.rank)
	}
	x.record = nil
	if x.err != nil && x.pending&(unacknowledged|lentOut) != 0 {
		w.orphans.add(x)
	}
	w.results.Finish(record, x.err)
}

// trace hands the timestamps of a completed exchange to the ring, an entry per server. Under Worker.mu.
func (x *activeExchange) trace(ring *trace.Ring, worker stepvan.Rank) {
	for _, r := range x.requests {
		ring.Record(trace.Entry{
			Stamps: r.stamps, Label: x.label, RequestID: uint64(r.id), Key: uint64(r.firstKey()),
			BytesOut: int64(r.bytesOut), BytesBack: int64(r.bytesBack),
			Worker: int32(worker), Server: int32(r.server.rank),
		})
	}
}

// recycle ends x, which was refused. Under Worker.mu.
func (w *Worker) recycle(x *activeExchange) {
	w.keys.release(x)
	x.release(&w.lender)
	w.exchanges.end(x)
	w.exchanges.tidy() // the next ones may be refused as well
}
