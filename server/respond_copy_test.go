package server_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// fill sets all floats of x.
func fill(t testing.TB, x tensor.Tensor, value float32) {
	v := Values(t, x)
	v[0] = value
	for n := 1; n < len(v); n *= 2 {
		copy(v[n:], v[:n])
	}
}

// requireFilled checks that all floats of x have a value.
func requireFilled(t testing.TB, value float32, x tensor.Tensor, what string) {
	t.Helper()
	v := Values(t, x)
	require.Equal(t, value, v[0], what)
	require.True(t, bytes.Equal(x.Bytes()[:x.Len()-4], x.Bytes()[4:]), "%s: not all of %d floats are %v", what, len(v), value)
}

// issue sends n exchanges of one worker at once. reached tells whether the server reaches the memory of their pulls.
func issue(t testing.TB, w *Worker, n int, floats int64, reached bool) (handles []worker.Handle, pulls []tensor.Tensor) {
	for i := range n {
		pull := Floats(t, make([]float32, floats)...)
		if reached {
			x, err := w.Memory.Zeros(tensor.Float32, floats)
			require.NoError(t, err)
			t.Cleanup(func() { Free(t, x) })
			pull = x
		}
		h, err := w.PushPull(List(Floats(t, float32(i))), Keys(tensor.Key(i)), List(pull), Keys(tensor.Key(1000+i)))
		require.NoError(t, err)
		handles, pulls = append(handles, h), append(pulls, pull)
	}
	return handles, pulls
}

// The program uses one buffer for all answers, and fills it again as soon as the respond has returned.
func TestTheTensorsAreTheCallersAfterRespondCopy(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		for _, floats := range []int64{1, 200, 3_000, 40_000, 400_000} {
			for _, reached := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d floats, reached %v", floats, reached), func(t *testing.T) {
					const workers, n = 2, 5
					v, seen := Watch(v)
					c := New(t, Options{Van: v, Workers: workers})
					s := c.Servers[0]
					var handles [workers][]worker.Handle
					var pulls [workers][]tensor.Tensor
					for i, w := range c.Workers {
						handles[i], pulls[i] = issue(t, w, n, floats, reached)
					}
					buffer := Floats(t, make([]float32, floats)...)
					for stage := range n {
						for _, r := range take(t, s, stepvan.LockStep) {
							fill(t, buffer, float32(100*int(r.Worker)+stage))
							_, borrowed, err := s.RespondCopy(List(buffer), r.ID)
							require.NoError(t, err)
							require.False(t, borrowed)
							fill(t, buffer, -2)
						}
					}
					for i := range handles {
						for stage, h := range handles[i] {
							require.NoError(t, h.Wait(Context(t)))
							requireFilled(t, float32(100*i+stage), pulls[i][stage], fmt.Sprintf("worker %d, stage %d", i, stage))
						}
					}
					if v.Shares && reached && floats >= 3_000 {
						require.EqualValues(t, 4*workers*n, seen.Bytes.Load(), "the pushes alone: the server has written the answers itself")
					}
				})
			}
		}
	})
}

func TestTheTensorIsTheCallersAfterRespondVecCopy(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		const workers, n, rows, columns = 3, 4, 2, 20_000
		c := New(t, Options{Van: v, Workers: workers})
		s := c.Servers[0]
		var handles [workers][]worker.Handle
		var pulls [workers][]tensor.Tensor
		for i, w := range c.Workers {
			handles[i], pulls[i] = issue(t, w, n, rows*columns, i == 1)
		}
		buffer, err := tensor.FromBytes(tensor.Float32, tensor.ShapeOf(workers*rows, columns), make([]byte, 4*workers*rows*columns))
		require.NoError(t, err)
		like := Floats(t, make([]float32, rows)...)
		for stage := range n {
			var handlers []server.RequestID
			for _, r := range take(t, s, stepvan.LockStep) {
				handlers = append(handlers, r.ID)
			}
			for i := range int64(workers) {
				part, err := buffer.Slice(rows*i, rows*(i+1))
				require.NoError(t, err)
				fill(t, part, float32(100*int(i)+stage))
			}
			_, borrowed, err := s.RespondVecCopy(buffer, List(like, like, like), handlers)
			require.NoError(t, err)
			require.False(t, borrowed)
			fill(t, buffer, -2)
		}
		for i := range handles {
			for stage, h := range handles[i] {
				require.NoError(t, h.Wait(Context(t)))
				requireFilled(t, float32(100*i+stage), pulls[i][stage], fmt.Sprintf("worker %d, stage %d", i, stage))
			}
		}
	})
}

// When the pools of both sides are full, an answer is borrowed, and the wait for it ends.
func TestRespondCopyWithFullPools(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		const n, floats = 6, 1 << 20
		memory, err := tensor.NewAllocator(tensor.Options{Name: "pool", MaxBytes: 64 << 10, MaxBytesSetting: "room"})
		require.NoError(t, err)
		c := New(t, Options{Van: v, Server: server.Options{Memory: memory}, Link: func(o *link.Options) { o.Memory = memory }})
		t.Cleanup(func() { require.NoError(t, memory.Close()) })
		s := c.Servers[0]
		handles, pulls := issue(t, c.Workers[0], n, floats, false)
		buffer := Floats(t, make([]float32, floats)...)
		for stage := range n {
			r := take(t, s, stepvan.DefaultPolicy)[0]
			fill(t, buffer, float32(stage))
			back, borrowed, err := s.RespondCopy(List(buffer), r.ID)
			require.NoError(t, err)
			require.True(t, borrowed)
			require.NoError(t, back.Wait(Context(t)))
			fill(t, buffer, -2)
		}
		for stage, h := range handles {
			require.NoError(t, h.Wait(Context(t)))
			requireFilled(t, float32(stage), pulls[stage], fmt.Sprintf("stage %d", stage))
		}
	})
}

func TestRespondCopyToAFullQueueIsTaken(t *testing.T) {
	c := New(t, Options{Van: WithFaults(Mem()), Link: fewMessages, Workers: 2})
	s := c.Servers[0]
	const n, floats = 40, 5_000
	var handles [2][]worker.Handle
	var pulls [2][]tensor.Tensor
	var all [2][]server.Request
	for stage := range n {
		for i, w := range c.Workers {
			pull := Floats(t, make([]float32, floats)...)
			retryWhileFull(t, func() error {
				h, err := w.PushPull(nil, nil, List(pull), Keys(tensor.Key(stage)))
				if err == nil {
					handles[i], pulls[i] = append(handles[i], h), append(pulls[i], pull)
				}
				return err
			})
		}
		for i, r := range take(t, s, stepvan.LockStep) {
			all[i] = append(all[i], r)
		}
	}
	require.True(t, c.Net.Stall("worker 0"))
	one := Floats(t, make([]float32, floats)...)
	both, err := tensor.FromBytes(tensor.Float32, tensor.ShapeOf(2, floats), make([]byte, 2*4*floats))
	require.NoError(t, err)
	row := Floats(t, 0)
	for stage := range n {
		if stage%2 == 0 {
			for i := range all {
				fill(t, one, float32(100*i+stage))
				_, borrowed, err := s.RespondCopy(List(one), all[i][stage].ID)
				require.NoError(t, err)
				require.False(t, borrowed)
			}
			fill(t, one, -2)
			continue
		}
		for i := range int64(2) {
			part, err := both.Slice(i, i+1)
			require.NoError(t, err)
			fill(t, part, float32(100*int(i)+stage))
		}
		_, borrowed, err := s.RespondVecCopy(both, List(row, row), []server.RequestID{all[0][stage].ID, all[1][stage].ID})
		require.NoError(t, err)
		require.False(t, borrowed)
		fill(t, both, -2)
	}
	require.Zero(t, s.Stats().Unanswered)
	require.True(t, c.Net.Resume("worker 0"))
	for i := range handles {
		for stage, h := range handles[i] {
			require.NoError(t, h.Wait(Context(t)))
			requireFilled(t, float32(100*i+stage), pulls[i][stage], fmt.Sprintf("worker %d, stage %d", i, stage))
		}
	}
}

// A worker that dies meanwhile causes no leak; the end of the cluster would find one.
func TestRespondCopyToAWorkerThatDies(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		const n, floats = 8, 300_000
		for _, reached := range []bool{false, true} {
			t.Run(fmt.Sprintf("reached %v", reached), func(t *testing.T) {
				c := New(t, Options{Van: v, Workers: 2})
				s, w := c.Servers[0], c.Workers[1]
				handles, pulls := issue(t, c.Workers[0], n, floats, reached)
				issue(t, w, n, floats, reached)
				buffer := Floats(t, make([]float32, floats)...)
				var last server.Response
				for stage := range n {
					for _, r := range take(t, s, stepvan.LockStep) {
						if stage == n/2 && r.Worker == 1 {
							require.NoError(t, w.Transport.Close())
						}
						fill(t, buffer, float32(stage))
						back, borrowed, err := s.RespondCopy(List(buffer), r.ID)
						require.NoError(t, err)
						require.False(t, borrowed)
						if r.Worker == 1 {
							last = back
						}
					}
				}
				require.ErrorIs(t, last.Wait(Context(t)), stepvan.ErrPeerLost)
				for stage, h := range handles {
					require.NoError(t, h.Wait(Context(t)))
					requireFilled(t, float32(stage), pulls[stage], fmt.Sprintf("stage %d", stage))
				}
			})
		}
	})
}

func TestRespondCopyFromSeveralGoroutines(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		const n, floats, answering = 24, 30_000, 4
		c := New(t, Options{Van: v})
		s := c.Servers[0]
		handles, pulls := issue(t, c.Workers[0], n, floats, false)
		var work [answering][]server.Request
		for stage := range n {
			work[stage%answering] = append(work[stage%answering], take(t, s, stepvan.DefaultPolicy)...)
		}
		var group sync.WaitGroup
		errors := make(chan error, n)
		for k, requests := range work {
			buffer := Floats(t, make([]float32, floats)...)
			group.Go(func() {
				for i, r := range requests {
					fill(t, buffer, float32(i*answering+k))
					_, _, err := s.RespondCopy(List(buffer), r.ID)
					errors <- err
				}
			})
		}
		group.Wait()
		for range n {
			require.NoError(t, <-errors)
		}
		for stage, h := range handles {
			require.NoError(t, h.Wait(Context(t)))
			requireFilled(t, float32(stage), pulls[stage], fmt.Sprintf("stage %d", stage))
		}
	})
}

func TestRespondCopyThatDoesNotFitSendsNothing(t *testing.T) {
	c := New(t, Options{})
	handles, pulls := issue(t, c.Workers[0], 1, 2, false)
	s := c.Servers[0]
	h := take(t, s, stepvan.DefaultPolicy)[0].ID
	for _, x := range [][]tensor.Tensor{nil, List(Floats(t, 1)), List(Floats(t, 1, 2, 3)), List(Floats(t, 1, 2), Floats(t, 1))} {
		_, borrowed, err := s.RespondCopy(x, h)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.False(t, borrowed)
	}
	_, _, err := s.RespondCopy(List(Floats(t, 1, 2)), h)
	require.NoError(t, err)
	_, _, err = s.RespondCopy(List(Floats(t, 1, 2)), h)
	require.ErrorIs(t, err, stepvan.ErrStale)
	require.NoError(t, handles[0].Wait(Context(t)))
	require.Equal(t, []float32{1, 2}, Values(t, pulls[0]))
}

// Budget of RespondCopy: 0 allocations in the steady state, whichever way the answer goes.
func TestRespondCopyAllocatesNothing(t *testing.T) {
	if Race {
		t.Skip("the race detector allocates")
	}
	forVans(t, func(t *testing.T, v Van) {
		for _, floats := range []int64{100, 3_000, 100_000} {
			t.Run(fmt.Sprintf("%d floats", floats), func(t *testing.T) {
				c := New(t, Options{Van: v, Worker: worker.Options{Handles: 32}, Server: server.Options{Handles: 32}})
				w, s := c.Workers[0], c.Servers[0]
				pull, err := w.Memory.Zeros(tensor.Float32, floats)
				require.NoError(t, err)
				t.Cleanup(func() { Free(t, pull) })
				request := worker.Exchange{
					Push: List(Floats(t, 1)), PushKeys: Keys(1),
					Pull: List(pull, Floats(t, make([]float32, floats)...)), PullKeys: Keys(2, 3),
				}
				buffer := Floats(t, make([]float32, floats)...)
				answers, wrong := List(buffer, buffer), 0
				var batch server.Batch
				round := func() {
					h, err := w.Do(&request)
					if err != nil || s.GetBatchFor(WaitLimit, stepvan.DefaultPolicy, &batch) != nil {
						wrong++
						return
					}
					if _, borrowed, err := s.RespondCopy(answers, batch.Requests[0].ID); borrowed || err != nil {
						wrong++
					}
					if h.WaitFor(WaitLimit) != nil {
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
	})
}
