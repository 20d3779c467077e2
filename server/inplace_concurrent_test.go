package server_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
)

// Out returns the same tensor to every goroutine that asks.
func TestOutIsTheSameForAllWhoAsk(t *testing.T) {
	c := New(t, Options{Van: OneSided()})
	w, s := c.Workers[0], c.Servers[0]
	pull := shared(t, w.Instance, 0, many)
	h, err := w.PushPull(nil, nil, List(pull), Keys(1))
	require.NoError(t, err)
	r := take(t, s, stepvan.DefaultPolicy)[0]
	var all sync.WaitGroup
	got := make([]tensor.Tensor, 8)
	for i := range got {
		all.Go(func() { got[i], _ = r.Out(0) })
	}
	all.Wait()
	for _, x := range got {
		require.Equal(t, got[0], x)
	}
	respond(t, s, r.ID, got[0])
	require.NoError(t, h.Wait(Context(t)))
}

// One goroutine responds while others ask for views. They get those of the request, or an error.
func TestViewsBesideTheRespond(t *testing.T) {
	c := New(t, Options{Van: OneSided()})
	w, s := c.Workers[0], c.Servers[0]
	pull := shared(t, w.Instance, 0, many)
	for range 200 {
		h, err := w.PushPull(nil, nil, List(pull), Keys(1))
		require.NoError(t, err)
		r := take(t, s, stepvan.DefaultPolicy)[0]
		var asking sync.WaitGroup
		asking.Go(func() {
			for {
				if _, err := r.Out(0); err != nil {
					if !errors.Is(err, stepvan.ErrStale) {
						t.Error(err)
					}
					return
				}
			}
		})
		respond(t, s, r.ID, Floats(t, make([]float32, many)...))
		require.NoError(t, h.Wait(Context(t)))
		asking.Wait()
	}
}

// In beside the respond returns the tensor of the request or an error, never the tensor of a later request.
func TestInBesideTheRespond(t *testing.T) {
	c := New(t, Options{})
	w, s := c.Workers[0], c.Servers[0]
	asked := make(chan server.Request)
	wrong := make(chan error, 1)
	go func() {
		defer close(wrong)
		for r := range asked {
			want := 0
			for {
				x, err := r.In(0)
				if errors.Is(err, stepvan.ErrStale) {
					break
				}
				if err == nil && want == 0 {
					want = x.Len()
				}
				if err != nil || x.Len() != want {
					wrong <- fmt.Errorf("a push of %d bytes, then of %d: %w", want, x.Len(), err)
					return
				}
			}
		}
	}()
	for i := range 300 {
		h, err := w.PushPull(List(Floats(t, make([]float32, 1+i%7)...)), Keys(1), nil, nil)
		require.NoError(t, err)
		r := take(t, s, stepvan.DefaultPolicy)[0]
		select {
		case asked <- r:
		case err := <-wrong:
			require.NoError(t, err)
		}
		respond(t, s, r.ID)
		require.NoError(t, h.Wait(Context(t)))
	}
	close(asked)
	require.NoError(t, <-wrong)
}
