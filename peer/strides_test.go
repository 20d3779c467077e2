package peer_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// randomView is a part of a matrix or of a tensor of three dimensions, which are in any order. Its elements have 1 to 8
// bytes.
func randomView(t testing.TB, p *pairtest.PeerOfCluster, r *rand.Rand, d tensor.DType, dims []int64) tensor.Strided {
	t.Helper()
	order := r.Perm(len(dims)) // of the memory
	whole, lo := make([]int64, len(dims)), make([]int64, len(dims))
	for i, at := range order {
		lo[i] = r.Int64N(3)
		whole[i] = dims[at] + lo[i] + r.Int64N(3)
	}
	strides := make([]int64, len(dims))
	offset, step := int64(0), int64(1)
	for i := len(order) - 1; i >= 0; i-- {
		strides[order[i]] = step
		offset += lo[i] * step
		step *= whole[i]
	}
	elements, err := tensor.FromBytes(d, tensor.ShapeOf(step), make([]byte, step*int64(d.Size())))
	if r.IntN(2) == 0 {
		elements, err = p.Memory.Empty(d, step)
		t.Cleanup(func() { pairtest.Free(t, elements) })
	}
	require.NoError(t, err)
	for i := range elements.Bytes() {
		elements.Bytes()[i] = byte(r.Uint32())
	}
	v, err := elements.AsStrided(tensor.ShapeOf(dims...), strides, offset)
	require.NoError(t, err)
	return v
}

// contents are the elements of a view in the order of its shape.
func contents(t testing.TB, v tensor.Strided) []byte {
	t.Helper()
	to, err := tensor.FromBytes(v.DType(), v.Shape(), make([]byte, v.Len()))
	require.NoError(t, err)
	all := to.Strided()
	require.NoError(t, all.CopyFrom(&v))
	return to.Bytes()
}

// Views of all strides keep their elements, whether the bytes travel at once or not, and within a plan.
func TestViewsOfAnyStrides(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
		r := rand.New(rand.NewPCG(5, 6))
		types := []tensor.DType{tensor.Uint8, tensor.BFloat16, tensor.Float32, tensor.Float64}
		for round := range 60 {
			d := types[r.IntN(len(types))]
			dims := make([]int64, r.IntN(4))
			for i := range dims {
				dims[i] = 1 + r.Int64N([]int64{4, 12, 60}[round%3])
			}
			from, to := randomView(t, all[0], r, d, dims), randomView(t, all[1], r, d, dims)
			want := contents(t, from)
			if round%2 == 0 {
				recv, err := all[1].Recv(to, 0, 3)
				require.NoError(t, err)
				send, err := all[0].Send(from, 1, 3)
				require.NoError(t, err)
				require.NoError(t, send.Wait(pairtest.Context(t)))
				require.NoError(t, recv.Wait(pairtest.Context(t)))
			} else {
				runOnce(t, all, from, to)
			}
			require.Equal(t, want, contents(t, to), "%s to %s", from, to)
		}
	})
}

// runOnce makes a plan of one move, and runs it.
func runOnce(t testing.TB, all []*pairtest.PeerOfCluster, from, to tensor.Strided) {
	t.Helper()
	plans := make([]*peer.Plan, 2)
	everywhere := func(f func(i int) error) {
		var g errgroup.Group
		for i := range plans {
			g.Go(func() error { return f(i) })
		}
		require.NoError(t, g.Wait())
	}
	everywhere(func(i int) (err error) {
		var moves [2][]peer.Move
		moves[i] = []peer.Move{{ID: 1, Peer: all[1-i].Rank(), View: []tensor.Strided{from, to}[i]}}
		plans[i], err = all[i].Plan(pairtest.Context(t), "one", moves[0], moves[1])
		return err
	})
	everywhere(func(i int) error {
		h, err := plans[i].Begin(1)
		if err != nil {
			return err
		}
		return h.Wait(pairtest.Context(t))
	})
	everywhere(func(i int) error { return plans[i].Close(pairtest.Context(t)) })
}
