package worker

import (
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/slots"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// request is what one server gets of an exchange. A slot of exchangeTable holds it. Worker.mu guards it.
type request struct {
	id       slots.ID // also on the wire
	exchange *activeExchange
	server   *serverPeer
	pushes   []int // indexes into exchange.push
	pulls    []int // indexes into exchange.pull, in the order of this server
	keys     map[tensor.Key]struct{}
	state    requestState
	plan     sendPlan

	message link.Outbound
	meta    []byte
	payload [][]byte

	stamps              trace.Stamps
	bytesOut, bytesBack uint64
}

// on changes the state, and reports whether e could happen.
func (r *request) on(e requestEvent) bool {
	to, ok := r.state.after(e)
	r.exchange.change(r.state, to)
	r.state = to
	return ok
}

// firstKey names the request in traces: the key of its first push, else of its first pull.
func (r *request) firstKey() tensor.Key {
	if len(r.pushes) > 0 {
		return r.exchange.pushKeys[r.pushes[0]]
	}
	return r.exchange.pullKeys[r.pulls[0]]
}

// reset readies r for its next use. It has no payload.
func (r *request) reset() {
	r.exchange, r.server, r.state = nil, nil, 0
	r.pushes, r.pulls = r.pushes[:0], r.pulls[:0]
	r.plan.reset()
	r.stamps = trace.Stamps{}
	r.bytesOut, r.bytesBack = 0, 0
}

// setTarget says in d where memory is.
func setTarget(d *wire.Descriptor, t *link.Target) {
	d.Region, d.Offset, d.Generation = uint64(t.Grant), uint64(t.Offset), t.Generation
}

// noteResponse keeps what an answer says besides its payload, unless the handle has completed.
func (r *request) noteResponse(a *wire.Response) {
	x := r.exchange
	if x.state.completed() {
		return
	}
	copy(r.stamps[trace.RequestPostRecv:], a.Stamps[:])
	for j := range a.Pulls {
		r.bytesBack += a.Pulls[j].Bytes
	}
	if len(x.variable) > 0 {
		for j, i := range r.pulls {
			x.record.Value.lengths[i] = int64(a.Pulls[j].Bytes)
		}
	}
}
