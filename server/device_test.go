package server_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// Where a device of the van moves payload, the server aims all of a response or nothing of it, whatever Options.Copying
// says. Small answers that have no place travel with the head.
func TestResponsesThatADeviceWrites(t *testing.T) {
	for name, c := range map[string]struct {
		heap  []int64 // floats of pulls that the server does not reach
		lent  []int64 // floats of pulls that it reaches
		aimed bool
	}{
		"all reached":                      {lent: []int64{many, 3, many}, aimed: true},
		"a scalar out of reach":            {heap: []int64{1}, lent: []int64{many}, aimed: true},
		"as much as travels with the head": {heap: []int64{100, 156}, lent: []int64{many, 0}, aimed: true},
		"more than travels with the head":  {heap: []int64{100, 157}, lent: []int64{many}},
		"a large one out of reach":         {heap: []int64{many}, lent: []int64{many}},
		"all out of reach":                 {heap: []int64{many}},
		"scalars out of reach":             {heap: []int64{200, 200}, lent: []int64{0}},
	} {
		for _, copying := range []server.Copying{server.CopyAuto, server.CopyByServer, server.CopyByWorker} {
			for _, copies := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, copying %d, RespondCopy %v", name, copying, copies), func(t *testing.T) {
					v, seen := Watch(Offload())
					cluster := New(t, Options{Van: v, Server: server.Options{Copying: copying}})
					w, s := cluster.Workers[0], cluster.Servers[0]
					var pulls, answers []tensor.Tensor
					for _, floats := range c.heap {
						pulls = append(pulls, Floats(t, make([]float32, floats)...))
					}
					for _, floats := range c.lent {
						pulls = append(pulls, shared(t, w.Instance, 0, floats))
					}
					var keys []tensor.Key
					for i, p := range pulls {
						answer := Floats(t, make([]float32, p.Len()/4)...)
						if p.Len() > 0 {
							fill(t, answer, float32(i+1))
						}
						answers, keys = append(answers, answer), append(keys, tensor.Key(i))
					}
					h, err := w.Do(&worker.Exchange{Pull: pulls, PullKeys: keys})
					require.NoError(t, err)
					r := take(t, s, stepvan.LockStep)[0]
					if copies {
						_, borrowed, err := s.RespondCopy(answers, r.ID)
						require.NoError(t, err)
						require.False(t, borrowed)
						for _, a := range answers {
							if a.Len() > 0 {
								fill(t, a, -1) // the caller's again
							}
						}
					} else {
						respond(t, s, r.ID, answers...)
					}
					require.NoError(t, h.Wait(Context(t)))
					for i, p := range pulls {
						if p.Len() > 0 {
							requireFilled(t, float32(i+1), p, "answer")
						}
					}
					require.Equal(t, c.aimed, seen.Written.Load() > 0)
					require.Equal(t, c.aimed, seen.Bytes.Load() == 0)
				})
			}
		}
	}
}

// A request is written into the chunks of its pushes although one small push has none.
func TestASmallPushWithoutAChunkTravelsWithTheHead(t *testing.T) {
	for name, c := range map[string]struct {
		floats  int64 // of the push without a chunk
		van     Van
		written int64
	}{
		"a scalar":                         {1, Offload(), 1},
		"as much as travels with the head": {256, Offload(), 1},
		"more than travels with the head":  {257, Offload(), 0},
		"a van without a device":           {1, OneSided(), 0},
	} {
		t.Run(name, func(t *testing.T) {
			v, seen := Watch(c.van)
			cluster := New(t, Options{Van: v})
			w, s := cluster.Workers[0], cluster.Servers[0]
			buffer := Floats(t, make([]float32, 2*many)...)
			registered, err := s.RegisterRecvBuffer(buffer, []stepvan.Rank{0, 0}, Keys(1, 3))
			require.NoError(t, err)
			first, small, last := Floats(t, make([]float32, many)...), Floats(t, make([]float32, c.floats)...), Floats(t, make([]float32, many)...)
			for i, x := range []tensor.Tensor{first, small, last} {
				fill(t, x, float32(i+1))
			}
			for range 3 {
				h, err := w.PushPull(List(first, small, last), Keys(1, 2, 3), nil, nil)
				require.NoError(t, err)
				r := take(t, s, stepvan.LockStep)[0]
				for i, x := range r.Pushes() {
					requireFilled(t, float32(i+1), x, "push")
				}
				respond(t, s, r.ID)
				require.NoError(t, h.Wait(Context(t)))
			}
			require.Equal(t, 3*c.written, seen.Written.Load())
			require.NoError(t, registered.Unregister())
		})
	}
}
