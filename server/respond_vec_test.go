package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// rows makes a tensor of n rows of 2, numbered from 0.
func rows(t testing.TB, n int64) tensor.Tensor {
	t.Helper()
	v := make([]float32, 2*n)
	for i := range v {
		v[i] = float32(i)
	}
	x, err := tensor.FromSlice(v, n, 2)
	require.NoError(t, err)
	return x
}

// request makes worker w pull tensors with pulls[w] rows, with keys from 0. It returns the requests, outputs and
// handles.
func request(t *testing.T, c *Cluster, pulls ...[]int64) (reqs []server.Request, outs [][]tensor.Tensor, handles []worker.Handle) {
	for i, counts := range pulls {
		var list []tensor.Tensor
		var keys []tensor.Key
		for k, n := range counts {
			list, keys = append(list, rows(t, n)), append(keys, tensor.Key(k))
			clear(list[k].Bytes())
		}
		h, err := c.Workers[i].PushPull(nil, nil, list, keys)
		require.NoError(t, err)
		outs, handles = append(outs, list), append(handles, h)
	}
	return take(t, c.Servers[0], stepvan.LockStep), outs, handles
}

func TestRespondVecCutsRows(t *testing.T) {
	c := New(t, Options{Workers: 3})
	reqs, outs, handles := request(t, c, []int64{2}, []int64{1, 2}, []int64{0})
	like := List(rows(t, 2), rows(t, 3), rows(t, 0))
	h := []server.RequestID{reqs[0].ID, reqs[1].ID, reqs[2].ID}
	r, err := c.Servers[0].RespondVec(rows(t, 7), like, h) // two rows are surplus
	require.NoError(t, err)
	require.NoError(t, r.Wait(Context(t)))
	for _, x := range handles {
		require.NoError(t, x.Wait(Context(t)))
	}
	require.Equal(t, []float32{0, 1, 2, 3}, Values(t, outs[0][0]))
	require.Equal(t, []float32{4, 5}, Values(t, outs[1][0]))
	require.Equal(t, []float32{6, 7, 8, 9}, Values(t, outs[1][1]))
}

func TestRespondVecThatDoesNotFitSendsNothing(t *testing.T) {
	c := New(t, Options{Workers: 2})
	s := c.Servers[0]
	reqs, outs, handles := request(t, c, []int64{2}, []int64{1, 2})
	a, b := reqs[0].ID, reqs[1].ID
	scalar, err := tensor.FromBytes(tensor.Float32, tensor.ShapeOf(), make([]byte, 4))
	require.NoError(t, err)
	wide, err := tensor.FromSlice(make([]float32, 15), 5, 3)
	require.NoError(t, err)
	good := List(rows(t, 2), rows(t, 3))
	cases := []struct {
		name string
		ret  tensor.Tensor
		like []tensor.Tensor
		h    []server.RequestID
		is   error
		says string
	}{
		{"unequal lists", rows(t, 5), good, []server.RequestID{a}, stepvan.ErrInvalid, "one per request (got 2, want 1)"},
		{"no handlers", rows(t, 5), nil, nil, stepvan.ErrInvalid, "no requests to answer"},
		{"too few rows", rows(t, 4), good, []server.RequestID{a, b}, stepvan.ErrInvalid, "too few rows (got 4, want 5)"},
		{"too few rows for a pull", rows(t, 5), List(rows(t, 1), rows(t, 3)), []server.RequestID{a, b}, stepvan.ErrInvalid, "the pull of key 0 is too small (got 8 bytes, want 16)"},
		{"too few rows for several", rows(t, 5), List(rows(t, 2), rows(t, 2)), []server.RequestID{a, b}, stepvan.ErrInvalid, "key 1 has 2 rows, and its slice of 2 rows has 1 left"},
		{"too many rows for several", rows(t, 6), List(rows(t, 2), rows(t, 4)), []server.RequestID{a, b}, stepvan.ErrInvalid, "4 rows for pulls of 3"},
		{"rows of another width", wide, good, []server.RequestID{a, b}, stepvan.ErrInvalid, "the pull of key 0 is too large (got 24 bytes, want at most 16)"},
		{"one handler twice", rows(t, 5), List(rows(t, 2), rows(t, 2)), []server.RequestID{a, a}, stepvan.ErrStale, "being answered"},
		{"unknown handler", rows(t, 5), good, []server.RequestID{a, 77}, stepvan.ErrStale, "never given"},
		{"scalar buffer", scalar, good, []server.RequestID{a, b}, stepvan.ErrInvalid, "scalar"},
		{"scalar to count", rows(t, 5), List(rows(t, 2), scalar), []server.RequestID{a, b}, stepvan.ErrInvalid, "no rows to count"},
		{"zero tensor to count", rows(t, 5), List(rows(t, 2), tensor.Tensor{}), []server.RequestID{a, b}, stepvan.ErrInvalid, "no rows to count"},
		{"zero buffer", tensor.Tensor{}, good, []server.RequestID{a, b}, stepvan.ErrInvalid, "zero Tensor"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			_, err := s.RespondVec(tc.ret, tc.like, tc.h)
			require.ErrorIs(t, err, tc.is)
			require.ErrorContains(t, err, tc.says)
		})
	}
	require.False(t, handles[0].Done())
	_, err = s.RespondVec(rows(t, 5), good, []server.RequestID{a, b})
	require.NoError(t, err)
	for _, h := range handles {
		require.NoError(t, h.Wait(Context(t)))
	}
	require.Equal(t, []float32{6, 7, 8, 9}, Values(t, outs[1][1]))
}

func TestRespondVecToAScalarPull(t *testing.T) {
	c := New(t, Options{})
	scalar, err := tensor.FromBytes(tensor.Float32, tensor.ShapeOf(), make([]byte, 4))
	require.NoError(t, err)
	h, err := c.Workers[0].PushPull(nil, nil, List(scalar, rows(t, 1)), Keys(1, 2))
	require.NoError(t, err)
	req := take(t, c.Servers[0], stepvan.DefaultPolicy)[0]
	_, err = c.Servers[0].RespondVec(rows(t, 5), List(rows(t, 2)), []server.RequestID{req.ID})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "scalar")
	respond(t, c.Servers[0], req.ID, Floats(t, 1), rows(t, 1))
	require.NoError(t, h.Wait(Context(t)))
}
