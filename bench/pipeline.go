package bench

import (
	"context"
	"time"

	"github.com/stepvan/stepvan/internal/sys"
)

// The pipeline of a split transformer has three stages: attention at the worker, the
// exchange, and the FFN at the server. A micro-batch enters attention after its answer from the
// layer before has arrived, and the micro-batch before it has left attention.

// compute stands for a computation on a device: it lets time pass. Like a thread that polls an
// event of the device, it looks at the clock and yields its core, so that the node can move bytes.
func compute(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		sys.Yield()
	}
}

// pipeline takes count micro-batches through one layer each. It times a layer from one attention of
// a micro-batch to the next. Budget: 0 allocations.
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
