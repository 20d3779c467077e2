package worker_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// echoAll answers one request of each server: pull i with the number of the server.
// It returns which keys each server got.
func echoAll(t *testing.T, c *Cluster, concerned ...int) (pushes, pulls [][]tensor.Key) {
	pushes, pulls = make([][]tensor.Key, len(c.Servers)), make([][]tensor.Key, len(c.Servers))
	for _, i := range concerned {
		req := batch(t, c.Servers[i])[0]
		pushes[i] = append(pushes[i], req.PushKeys()...)
		var back []tensor.Tensor
		for _, p := range req.Pulls() {
			pulls[i] = append(pulls[i], p.Key)
			back = append(back, Floats(t, float32(i)))
		}
		answer(t, c.Servers[i], req.ID, back...)
	}
	return pushes, pulls
}

func anyReady(servers int, r stepvan.Routing) Options {
	return Options{Van: WithFaults(Mem()), Servers: servers, Server: server.Options{Policy: stepvan.AnyReady}, Worker: worker.Options{Routing: r}}
}

func TestByKeyEachKeyHasOneOwner(t *testing.T) {
	c := New(t, anyReady(3, stepvan.ByKey))
	owners := map[tensor.Key]float32{}
	for round := range 2 {
		for k := range tensor.Key(30) {
			out := Floats(t, -1)
			h, err := c.Workers[0].PushPull(List(Floats(t, 1)), Keys(k), nil, nil)
			require.NoError(t, err)
			g, err := c.Workers[0].PushPull(nil, nil, List(out), Keys(k))
			require.NoError(t, err)
			owner := serveOne(t, c)
			require.Equal(t, owner, serveOne(t, c), "pushes and pulls of a key have one owner")
			require.NoError(t, h.Wait(Context(t)))
			require.NoError(t, g.Wait(Context(t)))
			require.Equal(t, float32(owner), Values(t, out)[0])
			if round == 0 {
				owners[k] = float32(owner)
			}
			require.Equal(t, owners[k], float32(owner))
		}
	}
	share := map[float32]int{}
	for _, o := range owners {
		share[o]++
	}
	require.Len(t, share, 3, "every server owns some")
}

// serveOne answers the one request that a server has, and returns which server.
func serveOne(t *testing.T, c *Cluster) int {
	for {
		for i, s := range c.Servers {
			var b server.Batch
			if s.GetBatchFor(0, stepvan.AnyReady, &b) == nil {
				var back []tensor.Tensor
				for range b.Requests[0].Pulls() {
					back = append(back, Floats(t, float32(i)))
				}
				answer(t, s, b.Requests[0].ID, back...)
				return i
			}
		}
	}
}

func TestNamed(t *testing.T) {
	c := New(t, anyReady(3, stepvan.Named))
	out := List(Floats(t, -1), Floats(t, -1), Floats(t, -1))
	h, err := c.Workers[0].Do(&worker.Exchange{
		Push: List(Floats(t, 1), Floats(t, 2)), PushKeys: Keys(1, 2), PushTo: []stepvan.Rank{2, 0},
		Pull: out, PullKeys: Keys(3, 4, 5), PullTo: []stepvan.Rank{0, 2, 0},
	})
	require.NoError(t, err)
	pushes, pulls := echoAll(t, c, 0, 2)
	require.Equal(t, [][]tensor.Key{{2}, nil, {1}}, pushes)
	require.Equal(t, [][]tensor.Key{{3, 5}, nil, {4}}, pulls)
	require.NoError(t, h.Wait(Context(t)))
	require.Equal(t, []float32{0, 2, 0}, []float32{Values(t, out[0])[0], Values(t, out[1])[0], Values(t, out[2])[0]})
	require.Zero(t, c.Servers[1].Stats().Requests, "a server without a tensor gets no request")
}

func TestOneNameForAll(t *testing.T) {
	c := New(t, anyReady(3, stepvan.ByKey))
	h, err := c.Workers[0].Do(&worker.Exchange{
		Routing: stepvan.Named, Push: List(Floats(t, 1), Floats(t, 2)), PushKeys: Keys(1, 2), PushTo: []stepvan.Rank{1},
	})
	require.NoError(t, err)
	pushes, _ := echoAll(t, c, 1)
	require.Equal(t, Keys(1, 2), pushes[1])
	require.NoError(t, h.Wait(Context(t)))
}

func TestPullsPairedWithPushes(t *testing.T) {
	c := New(t, anyReady(2, stepvan.Named))
	h, err := c.Workers[0].Do(&worker.Exchange{
		Push: List(Floats(t, 1), Floats(t, 2)), PushKeys: Keys(1, 2), PushTo: []stepvan.Rank{1, 0},
		Pull: List(Floats(t, 0), Floats(t, 0)), PullKeys: Keys(3, 4), PairWithPush: true,
	})
	require.NoError(t, err)
	_, pulls := echoAll(t, c, 0, 1)
	require.Equal(t, [][]tensor.Key{{4}, {3}}, pulls)
	require.NoError(t, h.Wait(Context(t)))
}

func TestLockStepServerRefusesRoutedRequests(t *testing.T) {
	c := New(t, Options{Worker: worker.Options{Routing: stepvan.ByKey}})
	h, err := c.Workers[0].PushPull(List(Floats(t, 1)), Keys(1), nil, nil)
	require.NoError(t, err)
	// The refusal is the answer. The key is free afterwards, whether the worker first notices the refusal or the
	// delivery.
	if err := h.Wait(Context(t)); err != nil {
		require.ErrorIs(t, err, stepvan.ErrRemote)
		require.ErrorContains(t, err, "lock-step")
	}
	h, err = c.Workers[0].PushPull(nil, nil, List(Floats(t, 1)), Keys(1))
	require.NoError(t, err)
	err = h.Wait(Context(t))
	require.ErrorIs(t, err, stepvan.ErrRemote)
	require.ErrorContains(t, err, "server 0")
	require.ErrorContains(t, err, "broadcast")
	var b server.Batch
	require.ErrorIs(t, c.Servers[0].GetBatchFor(0, stepvan.DefaultPolicy, &b), context.DeadlineExceeded)
}
