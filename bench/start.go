package bench

import (
	"cmp"
	"context"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/launch"
	"github.com/stepvan/stepvan/ps"
)

// runStarts measures a cluster from the start of the first process to the end of the last, with one
// exchange of each worker. The limit is the same number of processes that end at once.
func runStarts(ctx context.Context, o *Options, t *turn) (*Report, error) {
	o.Count = cmp.Or(o.Count, defaultStarts)
	whole, bare := newLatencies(), newLatencies()
	var all Samples
	for range o.Count {
		limit, err := timeRun(ctx, o.plan(nodeArgs{Bare: true}, nil), bare)
		if err != nil {
			return nil, err
		}
		took, err := timeRun(ctx, o.plan(nodeArgs{}, nil), whole)
		if err != nil {
			return nil, err
		}
		if err := t.yield(ctx); err != nil {
			return nil, err
		}
		all.add(round{p50: took, limit: limit, elapsed: took})
	}
	r := newReport(o)
	r.setFigures(whole, all)
	r.setLimit(all.Limit, all.Ratio, Curve{Latency: bare.curve(nil), Count: bare.count()})
	return r, nil
}

// timeRun returns the time in us.
func timeRun(ctx context.Context, plan launch.Plan, into latencies) (float64, error) {
	began := time.Now()
	err := launch.Run(ctx, plan)
	took := time.Since(began)
	into.add(took)
	return inMicros(took), err
}

// exchangeOnce is the program of a node that starts, exchanges once and stops. The workers end the
// only round of the servers.
func exchangeOnce(ctx context.Context, n *ps.Node) error {
	o := &Options{Workload: Echo, Workers: len(n.Peers()), Push: smallBytes, Pull: smallBytes, Inflight: 1}
	if n.Role() == stepvan.RoleServer {
		s, err := newServer(n, o, newLatencies())
		if err == nil {
			err = s.check(ctx, 1)
		}
		return err
	}
	w, err := newWorker(n, o, newLatencies())
	if err == nil {
		err = w.check(ctx, 1)
	}
	if err == nil {
		err = w.finish(ctx)
	}
	return err
}
