package bench

import (
	"context"
)

// Run measures. It blocks until all nodes have ended. The error joins the mistakes in
// the options, is that of launch.Run for processes, and the context's when ctx ends.
func Run(ctx context.Context, o Options) (*Report, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	switch {
	case o.Workload == Start:
		return runStarts(ctx, &o)
	case o.Van == Mem:
		return runInProcess(ctx, &o)
	}
	return runProcesses(ctx, &o)
}

func newConductor(o *Options) *conductor {
	return &conductor{opts: *o, workers: make([]*line, o.Workers), servers: make([]*line, o.Servers)}
}
