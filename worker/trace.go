package worker

import "github.com/stepvan/stepvan/trace"

// trace hands the timestamps of a completed call to the ring, an entry per server. Under w.mu.
func (w *Worker) trace(c *call) {
	if w.opt.Trace == nil {
		return
	}
	for _, p := range c.parts {
		w.opt.Trace.Record(trace.Entry{
			Stamps: p.stamps, Label: c.label, RequestID: p.id(), Key: uint64(p.firstKey()),
			BytesOut: int64(p.bytesOut), BytesBack: int64(p.bytesBack),
			Worker: int32(w.rank), Server: int32(p.server.rank),
		})
	}
}
