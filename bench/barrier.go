package bench

import (
	"context"
	"time"

	"github.com/stepvan/stepvan/ps"
)

// passBarriers passes count barriers over all workers and servers, and tells how long each took.
func passBarriers(ctx context.Context, n *ps.Node, count int, took func(time.Duration)) error {
	for last := time.Now(); count > 0; count-- {
		if err := n.Barrier(ctx, ps.Workers|ps.Servers, true); err != nil {
			return err
		}
		next := time.Now()
		took(next.Sub(last))
		last = next
	}
	return nil
}
