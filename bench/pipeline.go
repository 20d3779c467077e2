package bench

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// The pipeline of a split transformer has three stages: attention at the worker, the
// exchange, and the FFN at the server. Micro-batch k of Inflight goes through attention
// when its answer from the layer before is there and the micro-batch before it has left.

// compute is a computation: time that passes on a device. The thread looks at the clock and
// offers its core, as one that polls an event of the device does; the node moves
// bytes meanwhile.
func compute(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // cannot fail
	}
}

// pipeline takes count micro-batches through a layer each, and times a layer: from the
// beginning of one attention of a micro-batch to that of the next. 0 allocations.
func (w *worker) pipeline(ctx context.Context, count int) error {
	for k := range count + len(w.slots) {
		s := &w.slots[k%len(w.slots)]
		if k >= len(w.slots) {
			if err := s.handle.Wait(ctx); err != nil {
				return err
			}
		}
		layer := time.Now()
		if k >= len(w.slots) {
			w.times.add(layer.Sub(s.layer))
		}
		if k >= count {
			continue // the last layers end where the next would begin
		}
		s.layer = layer
		compute(w.spec.Compute)
		if err := s.begin(w.node); err != nil {
			return err
		}
	}
	return nil
}

// idealLayerTime is how long a layer takes at least when an exchange takes so long: the
// micro-batches wait for the slowest stage, or a single one passes all of them.
func (o *Options) idealLayerTime(exchangeUS float64) float64 {
	stage := float64(o.Compute.Nanoseconds()) / 1e3
	return max(float64(o.Inflight)*max(stage, exchangeUS), 2*stage+exchangeUS)
}
