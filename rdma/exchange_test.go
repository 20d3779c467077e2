package rdma_test

import (
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/progress"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/rdma"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/worker"
)

// layer is workers that exchange the same bytes with one server, in lock-step. One goroutine plays all of them.
type layer struct {
	t       *testing.T
	vans    map[string]van.Van // by the name of the instance
	cluster *Cluster
	asks    []worker.Exchange // of each worker
	handles []worker.Handle
	batch   server.Batch
	answers [][]tensor.Tensor // to each worker
}

func newLayer(t *testing.T, workers int, push, pull int64) *layer {
	t.Helper()
	if os.Getenv("RDMAVM_DEV1") == "" {
		t.Skip("no RDMA device: make test-rdma runs this test in a machine with some")
	}
	x := &layer{t: t, vans: map[string]van.Van{}, handles: make([]worker.Handle, workers)}
	x.cluster = New(t, Options{
		Workers: workers, Van: x.watched(RDMA()), Worker: worker.Options{Handles: handles}, Server: server.Options{Handles: handles},
		Link: func(o *link.Options) { o.Progress.Mode, o.PieceBytes = progress.Spin, 4<<20 },
	})
	s := x.cluster.Servers[0]
	var ranks []stepvan.Rank
	var keys []tensor.Key
	for i, w := range x.cluster.Workers {
		ranks, keys = append(ranks, stepvan.Rank(i)), append(keys, pushKey)
		x.asks = append(x.asks, worker.Exchange{
			Push: List(zeros(t, w.Memory, push)), PushKeys: Keys(pushKey),
			Pull: List(zeros(t, w.Memory, pull)), PullKeys: Keys(pullKey),
		})
		x.answers = append(x.answers, List(zeros(t, s.Memory, pull)))
	}
	_, err := s.RegisterRecvBuffer(zeros(t, s.Memory, push*int64(workers)), ranks, keys)
	require.NoError(t, err)
	return x
}

const (
	pushKey, pullKey = 1, 2
	handles          = 32
)

// watched is v, whose vans x can look at.
func (x *layer) watched(v Van) Van {
	var mu sync.Mutex
	maker := v.Maker
	v.Maker = func(instance string, memory *tensor.Allocator) link.VanMaker {
		return func(p van.Placer, wake func()) (van.Van, error) {
			made, err := maker(instance, memory)(p, wake)
			mu.Lock()
			defer mu.Unlock()
			x.vans[instance] = made
			return made, err
		}
	}
	return v
}

func zeros(t *testing.T, m *tensor.Allocator, size int64) tensor.Tensor {
	t.Helper()
	z, err := m.Zeros(tensor.Uint8, size)
	require.NoError(t, err)
	t.Cleanup(func() { m.Put(z.Region()) })
	return z
}

// exchange is one exchange of each worker.
func (x *layer) exchange() {
	x.ask()
	x.answer()
	x.wait()
}

// ask sends the requests of all workers, and takes them as a batch.
func (x *layer) ask() {
	for i, w := range x.cluster.Workers {
		h, err := w.Do(&x.asks[i])
		if err != nil {
			x.t.Fatal(err)
		}
		x.handles[i] = h
	}
	if err := x.cluster.Servers[0].GetBatchFor(WaitLimit, stepvan.LockStep, &x.batch); err != nil {
		x.t.Fatal(err)
	}
}

// answer responds to the batch.
func (x *layer) answer() {
	for _, r := range x.batch.Requests {
		if _, err := x.cluster.Servers[0].Respond(x.answers[r.Worker], r.ID); err != nil {
			x.t.Fatal(err)
		}
	}
}

// wait waits for the answers.
func (x *layer) wait() {
	for _, h := range x.handles {
		if err := h.WaitFor(WaitLimit); err != nil {
			x.t.Fatal(err)
		}
	}
}

// settle makes exchanges until both sides have what they need for the next ones: chunks are granted, records of
// handles used once.
func (x *layer) settle() {
	for range handles + 1 {
		x.exchange()
	}
}

// counts returns what the server has posted, and what all workers together have.
func (x *layer) counts() (ofServer, ofWorkers rdma.Counts) {
	var workers []van.Van
	for _, w := range x.cluster.Workers {
		workers = append(workers, x.vans[w.Name])
	}
	return rdma.CountsOf(x.vans[x.cluster.Servers[0].Name]), rdma.CountsOf(workers...)
}

// cost is what one side posts for an exchange.
type cost struct{ doorbells, requests, signaled int }

// extra returns how many acknowledgements travelled alone beside the messages that want is the cost of: each is one
// request with a doorbell of its own. They do that when an exchange takes milliseconds, as on a busy machine. All else
// that got has more or less than want is an error. One request of many is signaled, whichever it is.
func (want cost) extra(t *testing.T, c rdma.Counts) int {
	t.Helper()
	got := cost{int(c.Doorbells), int(c.Requests), int(c.Signaled)}
	extra := got.doorbells - want.doorbells
	require.GreaterOrEqual(t, extra, 0, "%v", got)
	require.Equal(t, want.requests+extra, got.requests, "%v", got)
	require.LessOrEqual(t, got.signaled, want.signaled+extra+1, "%v", got)
	return extra
}

// An exchange of worker and server costs what the messages of their vans cost, and nothing else: no other message, no
// read, no registration, no grant, no allocation.
func TestAnExchangeCostsItsMessages(t *testing.T) {
	for name, c := range map[string]struct {
		push, pull int64
		each       cost   // of each side
		head       uint64 // bytes of a request besides payload; 0: not looked at
	}{
		"an echo of 8 bytes": {8, 8, cost{doorbells: 1, requests: 1}, 256},
		"activations":        {7 << 17, 7 << 18, cost{doorbells: 1, requests: 2, signaled: 1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			x := newLayer(t, 1, c.push, c.pull)
			x.settle()
			const n = 32
			bytes := map[uint64]int{}
			for range n {
				s, w := x.counts()
				x.exchange()
				ofServer, ofWorker := x.counts()
				s, w = ofServer.Since(s), ofWorker.Since(w)
				require.LessOrEqual(t, c.each.extra(t, s), 1)
				if c.each.extra(t, w) == 0 {
					bytes[w.Bytes]++
				}
				for _, side := range []rdma.Counts{s, w} {
					require.Zero(t, side.Reads)
					require.Zero(t, side.Regions)
					require.Zero(t, side.Grants)
				}
			}
			if c.head > 0 { // package bench gives its limit messages of this length
				require.NotZero(t, bytes[uint64(c.push)+c.head], "%v", bytes)
				require.Len(t, bytes, 1)
			}
			if allocated := testing.AllocsPerRun(n, x.exchange); !Race {
				require.Zero(t, allocated)
			}
		})
	}
}

// A batch of eight workers is answered with a doorbell for each. Acknowledgements that travel alone may come between.
func TestAnswersToEightWorkersAreEightDoorbells(t *testing.T) {
	const workers = 8
	x := newLayer(t, workers, 4<<10, 8<<10)
	x.settle()
	want := cost{doorbells: workers, requests: 2 * workers, signaled: workers}
	for range 16 {
		x.ask()
		before, _ := x.counts()
		x.answer()
		after, _ := x.counts()
		require.LessOrEqual(t, want.extra(t, after.Since(before)), workers, "one for each")
		x.wait()
	}
}

// A stream of large pieces rings no more than one doorbell for 4 MiB.
func TestAStreamRingsFewDoorbells(t *testing.T) {
	const size, piece = 64 << 20, 4 << 20
	x := newLayer(t, 1, size, 8)
	x.exchange()
	s, w := x.counts()
	x.exchange()
	ofServer, ofWorker := x.counts()
	s, w = ofServer.Since(s), ofWorker.Since(w)
	require.LessOrEqual(t, w.Doorbells, uint64(size/piece))
	require.GreaterOrEqual(t, w.Bytes, uint64(size))
	require.Less(t, s.Doorbells, uint64(size/piece), "credit, acknowledgements, and the answer")
	require.Zero(t, w.Reads+s.Reads)
}
