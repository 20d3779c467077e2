package worker_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
	"github.com/stepvan/stepvan/worker"
)

// steady repeats one exchange. One goroutine plays both sides.
type steady struct {
	t      testing.TB
	w      *Worker
	s      *Server
	req    worker.Exchange
	batch  server.Batch
	answer []tensor.Tensor
}

func newSteady(t testing.TB, v Van, registered bool) *steady {
	ring := trace.NewRing(64)
	c := New(t, Options{
		Van:    v,
		Worker: worker.Options{Handles: 32, Trace: ring},
		Server: server.Options{Handles: 32, Trace: ring},
	})
	x := &steady{t: t, w: c.Workers[0], s: c.Servers[0]}
	push, err := x.w.Memory.Zeros(tensor.Float32, 2, 64)
	require.NoError(t, err)
	pull, err := x.w.Memory.Zeros(tensor.Float32, 2, 64)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, push.Region().Close())
		require.NoError(t, pull.Region().Close())
	})
	x.req = worker.Exchange{
		Push: List(push, Floats(t, 1)), PushKeys: Keys(1, 2),
		Pull: List(pull), PullKeys: Keys(3), Variable: []bool{true}, Label: "steady",
	}
	x.answer = List(Floats(t, make([]float32, 64)...))
	if registered {
		_, err := x.s.RegisterRecvBuffer(Floats(t, make([]float32, 2*128)...), []stepvan.Rank{0, 0}, Keys(1, 2))
		require.NoError(t, err)
	}
	return x
}

func (x *steady) round() {
	h, err := x.w.Do(&x.req)
	if err != nil {
		x.t.Fatal(err)
	}
	if err := x.s.GetBatchFor(WaitLimit, stepvan.DefaultPolicy, &x.batch); err != nil {
		x.t.Fatal(err)
	}
	if _, err := x.s.Respond(x.answer, x.batch.Requests[0].ID); err != nil {
		x.t.Fatal(err)
	}
	if err := h.WaitFor(WaitLimit); err != nil {
		x.t.Fatal(err)
	}
}

// Budget of worker and server: 0 allocations per exchange in the steady state,
// traces and variable lengths included, in registered and in pooled memory.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		for name, registered := range map[string]bool{"registered": true, "pooled": false} {
			t.Run(name, func(t *testing.T) {
				x := newSteady(t, v, registered)
				for range 500 {
					x.round()
				}
				if Race && v.Name != "mem" {
					return // waiters park there, with timers of a sync.Pool
				}
				require.Zero(t, testing.AllocsPerRun(500, x.round))
			})
		}
	})
}

// The worker keeps keys after their use, and drops those that are not used again.
func TestEverNewKeysAllocateNothing(t *testing.T) {
	x := newSteady(t, Mem(), false)
	key := tensor.Key(1000)
	round := func() {
		x.req.PushKeys[0] = key
		key++
		x.round()
	}
	for range 10_000 {
		round()
	}
	require.Zero(t, testing.AllocsPerRun(5000, round))
}

// This is the short form of a test over a million requests.
func TestMemoryStaysFlat(t *testing.T) {
	for _, v := range []Van{Mem(), OneSided()} {
		t.Run(v.Name, func(t *testing.T) { staysFlat(t, v) })
	}
}

func staysFlat(t *testing.T, v Van) {
	x := newSteady(t, v, true)
	rounds := 30_000
	if Race {
		rounds = 1500
	}
	for range 500 {
		x.round()
	}
	w, s, heap := x.w.Stats(), x.s.Stats(), heapBytes()
	for range rounds {
		x.round()
	}
	require.Less(t, heapBytes(), heap+64<<10, "bytes of the heap after %d requests", rounds)
	require.Equal(t, w.Records, x.w.Stats().Records)
	require.LessOrEqual(t, x.w.Stats().Exchanges, 2)
	require.Zero(t, x.w.Stats().Outstanding)
	require.Zero(t, x.w.Stats().BusyKeys)
	require.Zero(t, x.s.Stats().Unanswered)
	require.LessOrEqual(t, x.s.Stats().Requests, 2)
	require.LessOrEqual(t, x.s.Stats().Records, s.Records+64, "as messages do")
	require.LessOrEqual(t, x.s.Stats().Messages, s.Messages+64, "messages wait for acknowledgements only")
}

// heapBytes is the memory of live objects.
func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func forVans(t *testing.T, f func(t *testing.T, v Van)) {
	for _, v := range Vans() {
		t.Run(v.Name, func(t *testing.T) { f(t, v) })
	}
}

func BenchmarkExchange(b *testing.B) {
	for _, v := range Vans() {
		b.Run(v.Name, func(b *testing.B) {
			x := newSteady(b, v, true)
			b.ReportAllocs()
			for b.Loop() {
				x.round()
			}
		})
	}
}
