package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
	"github.com/stepvan/stepvan/worker"
)

// newEcho is the exchange of 8 bytes, each way, into registered memory.
func newEcho(t testing.TB, v Van) *steady {
	c := New(t, Options{
		Van:    v,
		Worker: worker.Options{Trace: trace.NewRing(1 << 16)},
		Server: server.Options{Trace: trace.NewRing(1 << 16)},
	})
	x := &steady{t: t, w: c.Workers[0], s: c.Servers[0]}
	zeros := func(m *tensor.Allocator) tensor.Tensor {
		z, err := m.Zeros(tensor.Uint8, 8)
		require.NoError(t, err)
		t.Cleanup(func() { m.Put(z.Region()) }) // the last acknowledgement frees it
		return z
	}
	x.req = worker.Exchange{
		Push: List(zeros(x.w.Memory)), PushKeys: Keys(1),
		Pull: List(zeros(x.w.Memory)), PullKeys: Keys(2), Label: "echo",
	}
	x.answer = List(zeros(x.s.Memory))
	_, err := x.s.RegisterRecvBuffer(zeros(x.s.Memory), []stepvan.Rank{0}, Keys(1))
	require.NoError(t, err)
	return x
}

// BenchmarkBudget measures what an exchange of 8 bytes costs both sides together in CPU time. One goroutine plays both
// sides over a van that costs next to nothing. So nobody waits, and no cache line travels. The figures come from the
// best run of 256, because other work of the machine only ever adds. The parts come from a second benchmark, less its
// clock reads.
func BenchmarkBudget(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, v := range []Van{Bare(), Shm()} {
		b.Run(v.Name+"/whole", func(b *testing.B) {
			x := newEcho(b, v)
			x.warmUp()
			b.ReportAllocs()
			var l least
			for b.Loop() {
				l.begin()
				x.exchange(ctx, nil)
				l.end()
			}
			b.ReportMetric(l.each(), "least-ns/op")
		})
		b.Run(v.Name+"/parts", func(b *testing.B) {
			x := newEcho(b, v)
			x.warmUp()
			var parts [4]least
			for b.Loop() {
				var at [5]time.Time
				x.exchange(ctx, &at)
				for i := range parts {
					parts[i].add(at[i+1].Sub(at[i]))
				}
			}
			clock := clockCost()
			for i, name := range []string{"do", "get_batch", "respond", "wait"} {
				b.ReportMetric(parts[i].each()-clock, name+"-ns/op")
			}
		})
	}
}

// least is the shortest of the runs of equally many operations.
type least struct {
	count   int
	started time.Time
	sum     time.Duration
	best    time.Duration
}

const run = 256

// begin and end bracket an operation; the clock is read twice per run.
func (l *least) begin() {
	if l.count == 0 {
		l.started = time.Now()
	}
}

func (l *least) end() {
	var d time.Duration
	if l.count == run-1 {
		d = time.Since(l.started)
	}
	l.add(d)
}

func (l *least) add(d time.Duration) {
	l.sum += d
	if l.count++; l.count < run {
		return
	}
	if l.best == 0 || l.sum < l.best {
		l.best = l.sum
	}
	l.sum, l.count = 0, 0
}

func (l *least) each() float64 { return float64(l.best.Nanoseconds()) / run }

// warmUp uses all records of handles once, as a program that runs for a while does.
func (x *steady) warmUp() {
	for range worker.DefaultHandles + 1 {
		x.round()
	}
}

// exchange is round without a time limit, as in a program whose waits can be interrupted.
func (x *steady) exchange(ctx context.Context, at *[5]time.Time) {
	read := func(i int) {
		if at != nil {
			at[i] = time.Now()
		}
	}
	read(0)
	h, err := x.w.Do(&x.req)
	read(1)
	if err == nil {
		err = x.s.GetBatchInto(ctx, stepvan.DefaultPolicy, &x.batch)
	}
	read(2)
	if err == nil {
		_, err = x.s.Respond(x.answer, x.batch.Requests[0].ID)
	}
	read(3)
	if err == nil {
		err = h.Wait(ctx)
	}
	read(4)
	if err != nil {
		x.t.Fatal(err)
	}
}

// clockCost is what a clock read adds to each part.
func clockCost() float64 {
	const n = 10_000
	least := time.Hour
	for range 10 {
		t := time.Now()
		for range n {
			_ = time.Now()
		}
		least = min(least, time.Since(t))
	}
	return float64(least.Nanoseconds()) / n
}
