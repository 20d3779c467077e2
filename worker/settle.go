package worker

import "github.com/stepvan/stepvan/trace"

// answered ends the wait for the server of r. Under Worker.mu.
func (w *Worker) answered(r *request) {
	x := r.exchange
	if r.state&unanswered != 0 { // else the server was lost while its answer was received
		x.last = r
	}
	r.on(answer)
	w.settle(x)
}

// settle does what is due after an event of x. That event may be the last one: x must not be used afterwards.
// Under Worker.mu.
func (w *Worker) settle(x *activeExchange) {
	completes := !x.state.completed() && x.any&placing == 0 && (x.err != nil || x.any&(sending|unanswered) == 0)
	if completes && len(x.checksums) > 0 {
		x.compareChecksums()
	}
	unused := (x.state.completed() || completes) && x.any&(sending|placing|lent) == 0
	if unused {
		x.release() // before the handle completes: the program may close the memory at once
	}
	if completes {
		w.complete(x)
	}
	if unused && x.err != nil {
		w.orphans.remove(x)
	}
	if x.any&unanswered == 0 {
		w.keys.release(x)
	}
	if x.state == finished && x.any == 0 {
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
	w.trace(x)
	x.record = nil
	if x.err != nil && x.any&(sending|lent) != 0 {
		w.orphans.add(x)
	}
	w.results.Finish(record, x.err)
}

// trace hands the timestamps of a completed exchange to the ring, an entry per server. Under Worker.mu.
func (w *Worker) trace(x *activeExchange) {
	if w.opt.Trace == nil {
		return
	}
	for _, r := range x.requests {
		w.opt.Trace.Record(trace.Entry{
			Stamps: r.stamps, Label: x.label, RequestID: r.id(), Key: uint64(r.firstKey()),
			BytesOut: int64(r.bytesOut), BytesBack: int64(r.bytesBack),
			Worker: int32(w.rank), Server: int32(r.server.rank),
		})
	}
}

// recycle ends x, which nobody uses any more, or which was refused. Under Worker.mu.
func (w *Worker) recycle(x *activeExchange) {
	w.keys.release(x)
	x.release()
	w.exchanges.recycle(x)
}
