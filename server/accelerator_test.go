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

// Every operation refuses memory that the processor does not reach, names the tensor, and changes nothing. It does not
// read the address, which no process has.
func TestMemoryOfAnAcceleratorIsRefused(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v})
		w, s := c.Workers[0], c.Servers[0]
		gpu := func(dims ...int64) tensor.Tensor {
			x, err := tensor.FromDevice(tensor.Device{Kind: tensor.DeviceCUDA, ID: 1}, 1<<60, tensor.Float32, tensor.ShapeOf(dims...), nil)
			require.NoError(t, err)
			return x
		}
		refused := func(err error, names string) {
			t.Helper()
			require.ErrorIs(t, err, stepvan.ErrNotSupported)
			require.ErrorContains(t, err, names)
			require.ErrorContains(t, err, "got cuda:1, want cpu")
		}
		host := Floats(t, 1)
		_, err := w.PushPull(List(host, gpu(1)), Keys(1, 2), nil, nil)
		refused(err, "push_pull: push tensor 1 (key 2)")
		_, err = w.Do(&worker.Exchange{Pull: List(gpu(1)), PullKeys: Keys(7)})
		refused(err, "push_pull: pull tensor 0 (key 7)")
		_, err = w.Register(gpu(1))
		refused(err, "register: the tensor")
		_, err = s.Register(gpu(1))
		refused(err, "register: the tensor")
		_, err = s.RegisterRecvBuffer(gpu(2), []stepvan.Rank{0}, Keys(1))
		refused(err, "register_recv_buffer: the tensor")

		h, pull := push(t, w, 1, 2)
		r := take(t, s, stepvan.LockStep)[0]
		_, err = s.Respond(List(gpu(1)), r.ID)
		refused(err, "respond: the tensor for the pull of key 2")
		_, _, err = s.RespondCopy(List(gpu(1)), r.ID)
		refused(err, "respond: the tensor for the pull of key 2")
		_, err = s.RespondVec(gpu(1, 1), List(host), []server.RequestID{r.ID})
		refused(err, "respond_vec: ret_buffer")
		respond(t, s, r.ID, Floats(t, 3))
		require.NoError(t, h.Wait(Context(t)))
		require.Equal(t, []float32{3}, Values(t, pull))
	})
}
