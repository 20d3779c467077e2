package worker_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// heap makes a tensor that no server can map.
func heap(t testing.TB, floats int, value float32) tensor.Tensor {
	t.Helper()
	v := make([]float32, floats)
	for i := range v {
		v[i] = value
	}
	return Floats(t, v...)
}

// A push that the server cannot map is copied once to memory that it can, where it reads the push in place.
func TestForeignPushesAreCopiedToPooledMemory(t *testing.T) {
	for _, v := range []Van{OneSided(), Shm()} {
		for name, x := range map[string]struct {
			floats int
			saved  bool
		}{
			"16 KiB": {4 << 10, false}, "128 KiB less one float": {32<<10 - 1, false}, "128 KiB": {32 << 10, true},
			"4 MiB": {1 << 20, true}, "more": {1<<20 + 1, false},
		} {
			t.Run(v.Name+", "+name, func(t *testing.T) {
				const servers = 2
				c := New(t, Options{Van: v, Servers: servers, Server: server.Options{Policy: stepvan.AnyReady}})
				w := c.Workers[0]
				push, other := heap(t, x.floats, 3), heap(t, x.floats, 4)
				pull := List(Floats(t, 0, 0), Floats(t, 0, 0))
				before := w.Memory.Stats()
				h, err := w.PushPull(List(push, other), Keys(1, 2), pull, Keys(3, 3))
				require.NoError(t, err)
				if x.saved {
					require.EqualValues(t, 2, w.Memory.Stats().Gets-before.Gets, "one copy for all servers")
				}
				for _, s := range c.Servers {
					b, err := s.GetBatch(Context(t), stepvan.AnyReady)
					require.NoError(t, err)
					r := b.Requests[0]
					for i, want := range []float32{3, 4} {
						require.Equal(t, x.saved, r.InPlace(i))
						in, err := r.In(i)
						require.NoError(t, err)
						got := Values(t, in)
						require.Equal(t, []float32{want, want, want}, []float32{got[0], got[len(got)/2], got[len(got)-1]})
					}
					_, err = s.Respond(List(Floats(t, 1, 2)), r.ID)
					require.NoError(t, err)
				}
				require.NoError(t, h.Wait(Context(t)))
				require.Equal(t, before.Regions, w.Memory.Stats().Regions, "the copies are back when the handle has completed")
			})
		}
	}
}

// Where a server has a chunk for the key, where nothing is pulled, or where the pool is full, the push travels as any
// other.
func TestForeignPushesThatAreNotCopied(t *testing.T) {
	const floats = 50_000
	for name, edit := range map[string]func(t *testing.T, c *Cluster, x *worker.Exchange){
		"a chunk": func(t *testing.T, c *Cluster, _ *worker.Exchange) {
			_, err := c.Servers[0].RegisterRecvBuffer(Floats(t, make([]float32, floats)...), []stepvan.Rank{0}, Keys(1))
			require.NoError(t, err)
			exchangeOnce(t, c, &worker.Exchange{Push: List(Floats(t, 1)), PushKeys: Keys(9), Pull: List(Floats(t, 1)), PullKeys: Keys(9)})
		},
		"no pulls":                   func(_ *testing.T, _ *Cluster, x *worker.Exchange) { x.Pull, x.PullKeys = nil, nil },
		"a pull into the same place": func(_ *testing.T, _ *Cluster, x *worker.Exchange) { x.Pull = x.Push },
		"a full pool": func(t *testing.T, c *Cluster, _ *worker.Exchange) {
			require.NoError(t, c.Workers[0].Memory.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(t, Options{Van: OneSided()})
			x := worker.Exchange{Push: List(heap(t, floats, 3)), PushKeys: Keys(1), Pull: List(heap(t, floats, 0)), PullKeys: Keys(2)}
			edit(t, c, &x)
			require.False(t, exchangeOnce(t, c, &x))
		})
	}
}

// exchangeOnce makes one exchange and reports whether its first push was in place.
func exchangeOnce(t *testing.T, c *Cluster, x *worker.Exchange) (inPlace bool) {
	t.Helper()
	h, err := c.Workers[0].Do(x)
	require.NoError(t, err)
	b, err := c.Servers[0].GetBatch(Context(t), stepvan.DefaultPolicy)
	require.NoError(t, err)
	r := b.Requests[0]
	inPlace = r.InPlace(0)
	pushed, err := r.In(0)
	require.NoError(t, err)
	require.Equal(t, x.Push[0].Bytes(), pushed.Bytes())
	answers := append([]tensor.Tensor(nil), x.Push...)[:len(x.Pull)]
	_, err = c.Servers[0].Respond(answers, r.ID)
	require.NoError(t, err)
	require.NoError(t, h.Wait(Context(t)))
	return inPlace
}

// A worker that tries again and again while the queue is full copies nothing.
func TestForeignPushesToAFullQueue(t *testing.T) {
	const floats = 40_000
	c := New(t, Options{Van: WithFaults(OneSided()), Link: func(o *link.Options) { o.QueueMessages = 3 }})
	w := c.Workers[0]
	push, pull := heap(t, floats, 3), Floats(t, 0)
	var handles []worker.Handle
	do := func() error {
		h, err := w.PushPull(List(push), Keys(tensor.Key(len(handles))), List(pull), Keys(1))
		if err == nil {
			handles = append(handles, h)
			pull = Floats(t, 0)
		}
		return err
	}
	require.NoError(t, do())
	require.True(t, c.Net.Stall("server 0"))
	var err error
	for err == nil {
		err = do()
	}
	require.ErrorIs(t, err, stepvan.ErrWouldBlock)
	paint := func(b byte) (found []byte) {
		r, err := w.Memory.Get(4 * floats)
		require.NoError(t, err)
		found = append(found, r.Bytes()...)
		for i := range r.Bytes() {
			r.Bytes()[i] = b
		}
		w.Memory.Put(r)
		return found
	}
	paint(0xEE)
	require.ErrorIs(t, do(), stepvan.ErrWouldBlock)
	for i, b := range paint(0) {
		require.EqualValues(t, 0xEE, b, "byte %d of pooled memory that the refused exchange has had", i)
	}
	require.True(t, c.Net.Resume("server 0"))
	for i, h := range handles {
		b, err := c.Servers[0].GetBatch(Context(t), stepvan.DefaultPolicy)
		require.NoError(t, err)
		_, err = c.Servers[0].Respond(List(Floats(t, float32(i))), b.Requests[0].ID)
		require.NoError(t, err)
		require.NoError(t, h.Wait(Context(t)))
	}
}

// A server dies while its program reads the copy. The copy stays until neither server reaches it.
func TestForeignPushesToAServerThatDies(t *testing.T) {
	for _, v := range []Van{OneSided(), Shm()} {
		c := New(t, Options{Van: v, Servers: 2})
		w := c.Workers[0]
		before := w.Memory.Stats().Regions
		h, err := w.PushPull(List(heap(t, 50_000, 3)), Keys(1), List(Floats(t, 0), Floats(t, 0)), Keys(2, 2))
		require.NoError(t, err)
		var requests []server.Request
		for _, s := range c.Servers {
			b, err := s.GetBatch(Context(t), stepvan.DefaultPolicy)
			require.NoError(t, err)
			requests = append(requests, b.Requests[0])
		}
		require.NoError(t, c.Servers[1].Transport.Close())
		requireLost(t, h.Wait(Context(t)), "server 1")
		for i, r := range requests {
			in, err := r.In(0)
			require.NoError(t, err)
			require.Equal(t, float32(3), Values(t, in)[49_999])
			require.Equal(t, before+1, w.Memory.Stats().Regions)
			_, _ = c.Servers[i].Respond(List(Floats(t, 1)), r.ID) // the second one is lost
		}
		require.Eventually(t, func() bool { return w.Memory.Stats().Regions == before }, WaitLimit, 1)
	}
}

// Budget: 0 allocations per exchange.
func TestForeignPushesAllocateNothing(t *testing.T) {
	if Race {
		t.Skip("the race detector allocates")
	}
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v, Worker: worker.Options{Handles: 32}, Server: server.Options{Handles: 32}})
		w, s := c.Workers[0], c.Servers[0]
		x := worker.Exchange{Push: List(heap(t, 40_000, 1), heap(t, 50_000, 2)), PushKeys: Keys(1, 2), Pull: List(Floats(t, 0)), PullKeys: Keys(3)}
		answer := List(Floats(t, 1))
		var batch server.Batch
		var failed error
		round := func() {
			h, err := w.Do(&x)
			if err == nil {
				err = s.GetBatchFor(WaitLimit, stepvan.DefaultPolicy, &batch)
			}
			if err == nil {
				_, err = s.Respond(answer, batch.Requests[0].ID)
			}
			if err == nil {
				err = h.WaitFor(WaitLimit)
			}
			if err != nil {
				failed = fmt.Errorf("exchange: %w", err)
			}
		}
		for range 200 {
			round()
		}
		require.Zero(t, testing.AllocsPerRun(300, round))
		require.NoError(t, failed)
	})
}
