package worker

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/trace"
)

// answered ends the wait for the server of r. Under Worker.mu.
func (w *Worker) answered(r *request) {
	x := r.exchange
	if r.state&unanswered != 0 { // else the server was lost while its answer was received
		x.last = r
	}
	r.on(answer)
	w.advance(x)
}

// advance does what is due after an event of x. That event may be the last one: x must not be used afterwards.
// Under Worker.mu.
func (w *Worker) advance(x *activeExchange) {
	completes := !x.state.completed() && x.pending&placing == 0 && (x.err != nil || x.pending&(sending|unanswered) == 0)
	if completes && len(x.checksums) > 0 {
		x.compareChecksums()
	}
	unused := (x.state.completed() || completes) && x.pending&(sending|placing|lentOut) == 0
	if unused {
		x.release() // before the handle completes: the program may close the memory at once
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
		w.recycle(x)
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
	if x.err != nil && x.pending&(sending|lentOut) != 0 {
		w.orphans.add(x)
	}
	w.results.Finish(record, x.err)
}

// trace hands the timestamps of a completed exchange to the ring, an entry per server. Under Worker.mu.
func (x *activeExchange) trace(ring *trace.Ring, worker stepvan.Rank) {
	for _, r := range x.requests {
		ring.Record(trace.Entry{
			Stamps: r.stamps, Label: x.label, RequestID: r.id(), Key: uint64(r.firstKey()),
			BytesOut: int64(r.bytesOut), BytesBack: int64(r.bytesBack),
			Worker: int32(worker), Server: int32(r.server.rank),
		})
	}
}

// recycle ends x, which nobody uses any more, or which was refused. Under Worker.mu.
func (w *Worker) recycle(x *activeExchange) {
	w.keys.release(x)
	x.release()
	w.exchanges.recycle(x)
}
