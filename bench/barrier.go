package bench

import (
	"context"
	"time"

	"github.com/stepvan/stepvan/ps"
)

// barriers is the program of workload barrier, of workers and servers. All know the count, so a round
// needs no end.
type barriers struct {
	node  *ps.Node
	times latencies
}

func (b *barriers) check(ctx context.Context, count int) error { return b.run(ctx, count) }

// run passes count barriers of all workers and servers, and times each.
func (b *barriers) run(ctx context.Context, count int) error {
	for last := time.Now(); count > 0; count-- {
		if err := b.node.Barrier(ctx, ps.Workers|ps.Servers, true); err != nil {
			return err
		}
		next := time.Now()
		b.times.add(next.Sub(last))
		last = next
	}
	return nil
}

func (b *barriers) finish(context.Context) error { return nil }
