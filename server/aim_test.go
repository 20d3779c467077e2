package server_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// aims are the options of a server that aims its responses wherever it can.
func aims() server.Options { return server.Options{Copying: server.CopyByServer} }

// The server writes a response into the pull tensors that it reaches. It sends other responses.
func TestAimedResponses(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		for _, floats := range []int64{1, 200, 3_000, 40_000, 3_000_000} {
			for _, reached := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d floats, reached %v", floats, reached), func(t *testing.T) {
					v, seen := Watch(v)
					c := New(t, Options{Van: v, Server: aims()})
					s := c.Servers[0]
					handles, pulls := issue(t, c.Workers[0], 3, floats, reached)
					awaitRequests(t, s, 3)
					for i, h := range handles {
						answer := Floats(t, make([]float32, floats)...)
						fill(t, answer, float32(i+1))
						r := take(t, s, stepvan.LockStep)[0]
						written, sent := seen.Written.Load(), seen.Bytes.Load()
						back, err := s.Respond(List(answer), r.ID)
						require.NoError(t, err)
						require.NoError(t, h.Wait(Context(t)))
						require.NoError(t, back.Wait(Context(t)))
						requireFilled(t, float32(i+1), pulls[i], "answer")
						there := reached && (v.Name == "one-sided" || (v.Name == "offload" || v.Name == "shm") && floats >= 3_000)
						require.Equal(t, there, seen.Bytes.Load() == sent)
						require.Equal(t, there, seen.Written.Load() > written)
					}
				})
			}
		}
	})
}

// The answers of one response are in place, aimed, empty or shorter than their pulls. They all go to the pull tensors,
// or none does.
func TestResponsesAreAimedAsAWhole(t *testing.T) {
	for _, v := range []Van{OneSided(), Shm()} {
		t.Run(v.Name, func(t *testing.T) {
			v, seen := Watch(v)
			c := New(t, Options{Van: v, Server: aims()})
			w, s := c.Workers[0], c.Servers[0]
			for name, c := range map[string]struct {
				heap    bool // one pull is in memory that the server does not reach
				inPlace bool // the first answer is made in place
				aimed   bool
			}{
				"all of its own":                {aimed: true},
				"one in place":                  {inPlace: true, aimed: true},
				"one out of reach":              {heap: true},
				"in place and one out of reach": {heap: true, inPlace: true},
			} {
				pull := List(shared(t, w.Instance, 0, many), shared(t, w.Instance, 0, many), Floats(t), shared(t, w.Instance, -1, many))
				if c.heap {
					pull[1] = Floats(t, make([]float32, many)...)
				}
				h, err := w.Do(&worker.Exchange{Pull: pull, PullKeys: Keys(1, 2, 3, 4), Variable: []bool{false, false, false, true}})
				require.NoError(t, err, name)
				r := take(t, s, stepvan.LockStep)[0]
				answers := List(Floats(t, make([]float32, many)...), Floats(t, make([]float32, many)...), Floats(t), Floats(t, make([]float32, 100)...))
				if c.inPlace {
					answers[0] = out(t, r, 0)
				}
				for i, a := range answers {
					if a.Len() > 0 {
						fill(t, a, float32(i+1))
					}
				}
				before := seen.Written.Load()
				respond(t, s, r.ID, answers...)
				require.NoError(t, h.Wait(Context(t)), name)
				require.Equal(t, c.aimed, seen.Written.Load() > before, name)
				requireFilled(t, 1, pull[0], name)
				requireFilled(t, 2, pull[1], name)
				got := Values(t, pull[3])
				require.Equal(t, []float32{4, 4, -1}, []float32{got[0], got[99], got[100]}, name)
				n, err := h.PullLen(3)
				require.NoError(t, err, name)
				require.EqualValues(t, 400, n, name)
			}
		})
	}
}

// The server writes the responses to those workers whose pull tensors it reaches, also where only the van can write.
func TestAimedResponsesOfRespondVec(t *testing.T) {
	forEach(t, Vans(), func(t *testing.T, v Van) {
		const workers, rows, columns = 3, 2, 20_000
		v, seen := Watch(v)
		c := New(t, Options{Van: v, Workers: workers, Server: aims()})
		s := c.Servers[0]
		var handles []worker.Handle
		var pulls []tensor.Tensor
		for i, w := range c.Workers {
			h, p := issue(t, w, 1, rows*columns, i != 1)
			handles, pulls = append(handles, h...), append(pulls, p...)
		}
		buffer, err := tensor.FromBytes(tensor.Float32, tensor.ShapeOf(workers*rows, columns), make([]byte, 4*workers*rows*columns))
		require.NoError(t, err)
		var ids []server.RequestID
		for i, r := range take(t, s, stepvan.LockStep) {
			part, err := buffer.Slice(int64(rows*i), int64(rows*(i+1)))
			require.NoError(t, err)
			fill(t, part, float32(i))
			ids = append(ids, r.ID)
		}
		like := Floats(t, make([]float32, rows)...)
		_, err = s.RespondVec(buffer, List(like, like, like), ids)
		require.NoError(t, err)
		for i, h := range handles {
			require.NoError(t, h.Wait(Context(t)))
			requireFilled(t, float32(i), pulls[i], "answer")
		}
		if v.Shares || v.Name == "offload" {
			require.EqualValues(t, 2, seen.Written.Load(), "all but the one that the server does not reach")
		}
	})
}

// The worker says where its pulls are. What the server cannot write there, it sends.
func TestResponsesToRoomThatTheVanRefuses(t *testing.T) {
	for name, edit := range map[string]func(*wire.Descriptor){
		"outside of the grant": func(d *wire.Descriptor) { d.Offset = 93 },
		"far outside":          func(d *wire.Descriptor) { d.Offset = 1 << 63 },
		"an offset that wraps": func(d *wire.Descriptor) { d.Offset = 1<<64 - 4 },
		"a stale generation":   func(d *wire.Descriptor) { d.Generation-- },
		"an unknown grant":     func(d *wire.Descriptor) { d.Region ^= 1 << 30 },
		"one of two":           nil,
	} {
		t.Run(name, func(t *testing.T) {
			o := aims()
			o.Policy = stepvan.AnyReady
			w := newWriterOf(t, o)
			mem := make([]byte, 100)
			g, err := w.session.Grant(mem, 5, link.RightRead|link.RightWrite)
			require.NoError(t, err)
			readOnly, err := w.session.Grant(make([]byte, 100), 5, link.RightRead)
			require.NoError(t, err)
			first, second := wire.KeyOf(1, 8), wire.KeyOf(2, 8)
			first.Region, first.Generation = uint64(g.ID), 5
			second.Region, second.Generation, second.Offset = uint64(g.ID), 5, 8
			if edit != nil {
				edit(&first)
			} else {
				second.Region = uint64(readOnly.ID)
			}
			w.sendReferences(1, nil, []wire.Descriptor{first, second})
			r := take(t, w.s, stepvan.AnyReady)[0]
			answer, err := tensor.FromBytes(tensor.Uint8, tensor.ShapeOf(8), []byte("answered"))
			require.NoError(t, err)
			back, err := w.s.Respond(List(answer, answer), r.ID)
			require.NoError(t, err)
			m := w.Take(t)
			require.Zero(t, m.Written)
			require.Equal(t, "answeredanswered", string(m.Payload))
			require.Equal(t, make([]byte, 92), mem[8:], "behind the room of the answer that was written in vain")
			m.Release()
			require.NoError(t, back.Wait(Context(t)))
		})
	}
}

// With CopyAuto the caches decide, and whether the server has time.
func TestWhoCopiesByChoice(t *testing.T) {
	const floats = 20_000
	push, pull := int64(4*floats), int64(4*floats)
	fits := server.Caches{Second: 9 * push / 4, Last: 100 * push} // two pushes fit, but not with two pulls
	for name, c := range map[string]struct {
		caches  server.Caches
		copying server.Copying
		ahead   bool // the next request is there before the response
		workers int
		written int64 // responses of two
	}{
		"the pushes fill the cache of the worker": {caches: fits, written: 2},
		"the worker, whatever fits":               {caches: fits, copying: server.CopyByWorker},
		"the server, whatever fits":               {copying: server.CopyByServer, written: 2},
		"a machine that does not tell":            {},
		"a cache that holds all":                  {caches: server.Caches{Second: 100 * push}},
		"no room in the last cache":               {caches: server.Caches{Second: fits.Second, Last: push + pull}},
		"a request that waits for the server":     {caches: fits, ahead: true, written: 1},
		"a batch of two":                          {caches: fits, workers: 2},
	} {
		t.Run(name, func(t *testing.T) {
			v, seen := Watch(OneSided())
			cluster := New(t, Options{Van: v, Workers: max(1, c.workers), Server: server.Options{Copying: c.copying, Caches: c.caches}})
			s := cluster.Servers[0]
			answer := shared(t, s.Instance, 1, floats)
			buffer := Floats(t, make([]float32, 2*floats*len(cluster.Workers))...)
			var who []stepvan.Rank
			var keys []tensor.Key
			for i := range cluster.Workers {
				who, keys = append(who, stepvan.Rank(i), stepvan.Rank(i)), append(keys, 1, 2)
			}
			_, err := s.RegisterRecvBuffer(buffer, who, keys)
			require.NoError(t, err)
			ask := func(w *Worker, k tensor.Key) worker.Handle {
				h, err := w.PushPull(List(shared(t, w.Instance, 1, floats)), Keys(k), List(shared(t, w.Instance, 0, floats)), Keys(10+k))
				require.NoError(t, err)
				return h
			}
			serve := func() {
				for _, r := range take(t, s, stepvan.LockStep) {
					respond(t, s, r.ID, answer)
				}
			}
			before := seen.Written.Load()
			if c.ahead {
				first, second := ask(cluster.Workers[0], 1), ask(cluster.Workers[0], 2)
				awaitRequests(t, s, 2)
				serve()
				serve()
				require.NoError(t, first.Wait(Context(t)))
				require.NoError(t, second.Wait(Context(t)))
			} else {
				for k := range tensor.Key(2) {
					var handles []worker.Handle
					for _, w := range cluster.Workers {
						handles = append(handles, ask(w, k+1))
					}
					serve()
					for _, h := range handles {
						require.NoError(t, h.Wait(Context(t)))
					}
				}
			}
			pushes := int64(2 * len(cluster.Workers))
			require.Equal(t, pushes+c.written, seen.Written.Load()-before)
		})
	}
}

// The worker could fetch these answers only at a quarter of the speed.
func TestAnswersThatTheWorkerCannotMap(t *testing.T) {
	const floats = 100_000
	for _, v := range []Van{OneSided(), Shm()} {
		for _, reached := range []bool{false, true} {
			for _, check := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, reached %v, checked %v", v.Name, reached, check), func(t *testing.T) {
					v, seen := Watch(withOwnNetwork(v))
					c := New(t, Options{Van: v, Server: server.Options{CheckBorrowed: check}})
					s := c.Servers[0]
					handles, pulls := issue(t, c.Workers[0], 1, floats, reached)
					answer := Floats(t, make([]float32, floats)...)
					fill(t, answer, 3)
					r := take(t, s, stepvan.LockStep)[0]
					back, err := s.Respond(List(answer), r.ID)
					require.NoError(t, err)
					if !check {
						fill(t, answer, 4) // against the rules, to show that the server has copied it
					}
					require.NoError(t, handles[0].Wait(Context(t)))
					require.NoError(t, back.Wait(Context(t)))
					requireFilled(t, 3, pulls[0], "answer")
					require.Equal(t, reached, seen.Written.Load() > 0)
				})
			}
		}
	}
}

func TestAimedResponsesAllocateNothing(t *testing.T) {
	if Race {
		t.Skip("the race detector allocates")
	}
	forVans(t, func(t *testing.T, v Van) {
		o := aims()
		o.Handles = 32
		c := New(t, Options{Van: v, Worker: worker.Options{Handles: 32}, Server: o})
		w, s := c.Workers[0], c.Servers[0]
		request := worker.Exchange{
			Push: List(Floats(t, 1)), PushKeys: Keys(1),
			Pull: List(shared(t, w.Instance, 0, many), shared(t, w.Instance, 0, 100)), PullKeys: Keys(2, 3),
		}
		answers, wrong := List(Floats(t, make([]float32, many)...), Floats(t, make([]float32, 100)...)), 0
		var batch server.Batch
		round := func() {
			h, err := w.Do(&request)
			if err != nil || s.GetBatchFor(WaitLimit, stepvan.DefaultPolicy, &batch) != nil {
				wrong++
				return
			}
			if _, err := s.Respond(answers, batch.Requests[0].ID); err != nil || h.WaitFor(WaitLimit) != nil {
				wrong++
			}
		}
		for range 200 {
			round()
		}
		require.Zero(t, testing.AllocsPerRun(300, round))
		require.Zero(t, wrong)
	})
}

// Everything ends while servers write. Nothing hangs, and no tensor stays in use: the end of the cluster would find it.
func TestTheEndWhileServersWrite(t *testing.T) {
	for name, end := range map[string]func(c *Cluster, cancel func()){
		"the node of the worker is closed": func(c *Cluster, _ func()) { _ = c.Workers[0].Transport.Close() },
		"the worker fails":                 func(c *Cluster, _ func()) { c.Workers[0].Fail(stepvan.ErrPeerLost) },
		"the node of the server is closed": func(c *Cluster, _ func()) { _ = c.Servers[0].Close(); _ = c.Servers[0].Transport.Close() },
		"the server is closed":             func(c *Cluster, _ func()) { _ = c.Servers[0].Close() },
		"nobody waits for the answer":      func(_ *Cluster, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []Van{OneSided(), Shm()} {
				for range 2 {
					o := aims()
					o.Policy = stepvan.AnyReady
					c := New(t, Options{Workers: 2, Van: withOwnNetwork(v), Server: o})
					var workers, serving sync.WaitGroup
					ctx, cancel := context.WithCancel(Context(t))
					begun := make(chan struct{}, 1000)
					for _, w := range c.Workers {
						pull := shared(t, w.Instance, 0, 500_000)
						workers.Go(func() {
							for n := range 20 {
								if err := exchangeUnregistered(ctx, w, pull, tensor.Key(n)); err != nil {
									return
								}
								begun <- struct{}{}
							}
						})
					}
					serving.Go(func() { serveCopies(Context(t), c.Servers[0]) })
					<-begun
					end(c, cancel)
					if name != "nobody waits for the answer" {
						_ = c.Servers[0].Close()
						for _, w := range c.Workers {
							_ = w.Transport.Close() // ends what the server does not answer
						}
					}
					workers.Wait()
					cancel()
					_ = c.Servers[0].Close()
					for _, w := range c.Workers {
						_ = w.Transport.Close()
					}
					serving.Wait()
				}
			}
		})
	}
}

// exchangeUnregistered pulls into a tensor that it registers, and ends the registration while the server answers.
func exchangeUnregistered(ctx context.Context, w *Worker, pull tensor.Tensor, k tensor.Key) error {
	reg, err := w.Register(pull)
	if err != nil {
		return err
	}
	h, err := w.PushPull(nil, nil, List(pull), Keys(k))
	err = errors.Join(err, reg.Close())
	if err != nil {
		return err
	}
	return h.Wait(ctx)
}

// serveCopies answers requests with memory of its own until the server is closed.
func serveCopies(ctx context.Context, s *Server) {
	answer, err := tensor.FromBytes(tensor.Float32, tensor.ShapeOf(500_000), make([]byte, 2_000_000))
	for err == nil {
		var b server.Batch
		if b, err = s.GetBatch(ctx, stepvan.AnyReady); err != nil {
			return
		}
		for _, r := range b.Requests {
			if _, err := s.Respond([]tensor.Tensor{answer}, r.ID); err != nil { // closed meanwhile
				_, _ = s.Respond(nil, r.ID)
			}
		}
	}
}
