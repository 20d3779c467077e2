package ps_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/ps"
)

// BenchmarkIdle measures what an idle cluster costs. Its nodes only send signs of life, and the server
// waits for a batch. The unit is percent of a core, all three nodes together. Budget: below 1 each.
func BenchmarkIdle(b *testing.B) {
	for _, van := range []vanKind{overTCP, byChoice} {
		b.Run(van.name, func(b *testing.B) {
			c := start(b, van, shape{workers: 1, servers: 1})
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() {
				_, err := c.servers[0].Server().GetBatch(ctx, ps.DefaultPolicy)
				ended <- err
			}()
			time.Sleep(time.Second) // what the start has left to do
			before, began := processorTime(b), time.Now()
			for b.Loop() {
				time.Sleep(time.Second)
			}
			b.ReportMetric(100*float64(processorTime(b)-before)/float64(time.Since(began)), "%core")
			cancel()
			require.ErrorIs(b, <-ended, context.Canceled)
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
