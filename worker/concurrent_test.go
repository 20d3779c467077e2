package worker_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// serve answers every request with its first push, each value plus add, until
// the workers have left.
func serve(ctx context.Context, s *Server, p stepvan.Policy, add float32) error {
	var b server.Batch
	for {
		err := s.GetBatchInto(ctx, p, &b)
		if errors.Is(err, stepvan.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, r := range b.Requests {
			in, err := tensor.As[float32](r.Pushes()[0])
			if err != nil {
				return err
			}
			out := make([]float32, len(in))
			for i := range in {
				out[i] = in[i] + add
			}
			back, err := tensor.FromSlice(out)
			if err != nil {
				return err
			}
			for {
				if _, err = s.Respond([]tensor.Tensor{back}, r.ID); !errors.Is(err, stepvan.ErrWouldBlock) {
					break
				}
			}
			if err != nil {
				return err
			}
		}
	}
}

// drive makes n exchanges with a key of its own and checks each answer.
func drive(w *worker.Worker, id, n int) error {
	in, out0, out1 := make([]float32, 33), make([]float32, 33), make([]float32, 33)
	push, _ := tensor.FromSlice(in)
	pull0, _ := tensor.FromSlice(out0)
	pull1, _ := tensor.FromSlice(out1)
	k := tensor.Key(id) << 16
	for i := range n {
		for j := range in {
			in[j] = float32(id*1000 + i + j)
		}
		h, err := w.PushPull([]tensor.Tensor{push}, []tensor.Key{k}, []tensor.Tensor{pull0, pull1}, []tensor.Key{k + 1, k + 2})
		if err != nil {
			return err
		}
		if err := h.WaitFor(WaitLimit); err != nil {
			return err
		}
		for j := range in {
			if out0[j] != in[j]+1 || out1[j] != in[j]+2 {
				return errors.New("a wrong answer")
			}
		}
	}
	return nil
}

func TestManyGoroutinesAndNodes(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		const goroutines, exchanges = 8, 60
		c := New(t, Options{Workers: 3, Servers: 2, Van: v})
		var served, driven sync.WaitGroup
		for i, s := range c.Servers {
			if i == 0 { // one with registered buffers, one without
				var ranks []stepvan.Rank
				var keys []tensor.Key
				for w := range c.Workers {
					for g := range goroutines {
						ranks, keys = append(ranks, stepvan.Rank(w)), append(keys, tensor.Key(w*100+g)<<16)
					}
				}
				_, err := s.RegisterRecvBuffer(Floats(t, make([]float32, 33*len(keys))...), ranks, keys)
				require.NoError(t, err)
			}
			served.Go(func() {
				if err := serve(Context(t), s, stepvan.AnyReady, float32(i+1)); err != nil {
					t.Error(err)
				}
			})
		}
		for wi, w := range c.Workers {
			for g := range goroutines {
				driven.Go(func() {
					if err := drive(w.Worker, wi*100+g, exchanges); err != nil {
						t.Error(err)
					}
				})
			}
		}
		driven.Wait()
		for _, w := range c.Workers {
			require.Zero(t, w.Stats().Outstanding)
			require.NoError(t, w.Transport.Close())
		}
		served.Wait()
	})
}
