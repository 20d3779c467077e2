package ps_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// replier is a server that answers each request with the request's own pushes.
type replier struct {
	node  *ps.Node
	batch ps.Batch
}

// turn serves one batch. 0 allocations in the steady state.
func (d *replier) turn(ctx context.Context) error {
	if err := d.node.GetBatchInto(ctx, ps.DefaultPolicy, &d.batch); err != nil {
		return err
	}
	for _, r := range d.batch.Requests {
		if _, err := d.node.Respond(r.Pushes(), r.ID); err != nil {
			return err
		}
	}
	return nil
}

// pairOf is a cluster of two with registered memory of size bytes on both sides.
func pairOf(t testing.TB, van vanKind, size int64) (d *replier, exchange func() error) {
	t.Helper()
	c := start(t, van, shape{workers: 1, servers: 1, edit: func(s *ps.Settings) { s.Handles = 256 }})
	w, s := c.workers[0], c.servers[0]
	buf, err := s.Memory().Empty(tensor.Uint8, size)
	require.NoError(t, err)
	_, err = s.RegisterRecvBuffer(buf, []ps.Rank{0}, []tensor.Key{1})
	require.NoError(t, err)
	push, pull := []tensor.Tensor{filled(t, w, size, 3)}, []tensor.Tensor{filled(t, w, size, 0)}
	pushKeys, pullKeys := []tensor.Key{1}, []tensor.Key{2}
	return &replier{node: s}, func() error {
		h, err := w.PushPull(push, pushKeys, pull, pullKeys)
		if err != nil {
			return err
		}
		return h.WaitFor(bound)
	}
}

// serveUntil runs the desk in the background until the test ends.
func (d *replier) serveUntil(ctx context.Context) {
	go func() {
		for d.turn(ctx) == nil {
		}
	}()
}

const steadyBytes = 64 << 10

// AllocsPerRun counts those of all goroutines: worker, server and both background drivers.
func TestExchangesDoNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			d, exchange := pairOf(t, van, steadyBytes)
			ctx, cancel := context.WithCancel(context.Background())
			t.Cleanup(cancel)
			d.serveUntil(ctx)
			for range 1000 { // until everything that is kept for reuse is there
				require.NoError(t, exchange())
			}
			var failed error
			allocs := testing.AllocsPerRun(2000, func() {
				if err := exchange(); err != nil {
					failed = err
				}
			})
			require.NoError(t, failed)
			require.Zero(t, allocs)
		})
	}
}

// Nothing grows with the number of requests.
func TestMemoryStaysFlatSoak(t *testing.T) {
	rounds := 3000
	if *long {
		rounds = 1_000_000
	}
	d, exchange := pairOf(t, overTCP, 256)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	d.serveUntil(ctx)
	run := func(n int) {
		for range n {
			require.NoError(t, exchange())
		}
	}
	run(1000)
	before, server := live(), d.node.Server().Stats()
	run(rounds)
	after, now := live(), d.node.Server().Stats()
	const some = 8 // that were in use at the same time by chance
	require.LessOrEqual(t, now.Requests, server.Requests+some)
	require.LessOrEqual(t, now.Records, server.Records+some)
	require.Less(t, after, before+256<<10, "bytes of the heap in use after %d further exchanges", rounds)
}

// live is the heap in use.
func live() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkExchange(b *testing.B) {
	for _, van := range vans() {
		b.Run(van.name, func(b *testing.B) {
			d, exchange := pairOf(b, van, 8)
			ctx, cancel := context.WithCancel(context.Background())
			b.Cleanup(cancel)
			d.serveUntil(ctx)
			b.ReportAllocs()
			for b.Loop() {
				if err := exchange(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLife is a whole cluster's: scheduler, a worker and a server start, exchange once and stop.
func BenchmarkLife(b *testing.B) {
	for _, van := range vans() {
		b.Run(van.name, func(b *testing.B) {
			for b.Loop() {
				start(b, van, shape{workers: 1, servers: 1}).exercise(1000, 1)
			}
		})
	}
}
