package bench

import (
	"context"
	"time"

	"github.com/stepvan/stepvan/trace"
)

// idle lets time pass. The program of the worker does not wait for anything of its node, while those of
// the servers wait for requests.
func (w *worker) idle(ctx context.Context, count int) error {
	for ; count > 0; count-- {
		began := trace.Now()
		select {
		case <-time.After(idleTime):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		w.times.add(time.Duration(trace.Now() - began))
	}
	return nil
}

// waitingCPU is the share of a core that a process uses while it only waits. That is a worker whose
// server computes, or the busiest node of workload idle. Other measurements have none. The replies
// of a round begin with those of the workers.
func (c *coordinator) waitingCPU(replies []reply) (most float64) {
	switch {
	case c.opts.Workload == Idle:
	case len(c.opts.Work.Think) > 0:
		replies = replies[:c.opts.Workers]
	default:
		return 0
	}
	for _, r := range replies {
		most = max(most, float64(r.CPU)/float64(max(r.Elapsed, 1)))
	}
	return most
}
