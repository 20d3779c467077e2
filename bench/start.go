package bench

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
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
		limit, err := timeRun(ctx, o.plan(nodeArgs{Bare: true}), bare)
		if err != nil {
			return nil, err
		}
		took, err := timeRun(ctx, o.plan(nodeArgs{}), whole)
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

// exchangeOnce is the program of a node that starts, exchanges once and stops.
func exchangeOnce(ctx context.Context, n *ps.Node) error {
	s := &Options{Workload: Echo, Workers: 1, Push: smallBytes, Pull: smallBytes, Inflight: 1}
	if n.Role() == config.RoleWorker {
		w, err := newWorker(n, s, newLatencies())
		if err == nil {
			err = w.checkSlot(ctx, &w.slots[0])
		}
		return err
	}
	return echoUntilClosed(ctx, n)
}

// echoUntilClosed sends back what workers push, until all have left.
func echoUntilClosed(ctx context.Context, n *ps.Node) error {
	var batch ps.Batch
	for {
		err := n.GetBatchInto(ctx, ps.AnyReady, &batch)
		if errors.Is(err, stepvan.ErrClosed) && !errors.Is(err, stepvan.ErrPeerLost) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, r := range batch.Requests {
			if _, err := n.Respond(r.Pushes(), r.ID); err != nil {
				return err
			}
		}
	}
}
