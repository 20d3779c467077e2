package ps_test

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// More chunks than grants: all pushes arrive, and the log tells once what to set.
func TestGrantsRunOut(t *testing.T) {
	for _, x := range []struct {
		name          string
		grants, lines int
	}{{"too few", 64, 1}, {"rounded up to enough", 65, 0}} {
		t.Run(x.name, func(t *testing.T) {
			log := &journal{}
			c := start(t, overShm, shape{workers: 1, servers: 1,
				opts: []ps.Option{ps.WithLogger(zerolog.New(log))}, edit: func(s *ps.Settings) { s.Grants = x.grants }})
			n, s := c.workers[0], c.servers[0]
			const chunks = 100
			var push []tensor.Tensor
			var keys []tensor.Key
			for i := range chunks {
				b, err := s.Memory().Empty(tensor.Uint8, 16)
				require.NoError(t, err)
				_, err = s.RegisterRecvBuffer(b, []ps.Rank{0}, []tensor.Key{tensor.Key(i)})
				require.NoError(t, err)
				a, err := n.Memory().Zeros(tensor.Uint8, 16)
				require.NoError(t, err)
				a.Bytes()[15] = byte(i)
				push, keys = append(push, a), append(keys, tensor.Key(i))
			}
			for i := range chunks { // one that can be written into, and one that cannot, are not in one request
				h, err := n.PushPull(push[i:i+1], keys[i:i+1], nil, nil)
				require.NoError(t, err)
				batch, err := s.GetBatch(limited(t), ps.AnyReady)
				require.NoError(t, err)
				require.Equal(t, byte(i), batch.Requests[0].Pushes()[0].Bytes()[15])
				_, err = s.Respond(nil, batch.Requests[0].ID)
				require.NoError(t, err)
				require.NoError(t, h.Wait(limited(t)))
			}
			require.Equal(t, x.lines, strings.Count(log.String(), "STEPVAN_GRANTS"), log.String())
		})
	}
}

// A push is seen where it is when it is larger than STEPVAN_IN_PLACE_BYTES, which 0 forbids.
func TestInPlaceBytes(t *testing.T) {
	for _, x := range []struct {
		name    string
		limit   config.Bytes
		push    int64
		inPlace bool
	}{
		{"above the default", 4096, 4097, true},
		{"at the default", 4096, 4096, false},
		{"above a larger one", 1 << 20, 1<<20 + 1, true},
		{"at a larger one", 1 << 20, 1 << 20, false},
		{"forbidden", 0, 1 << 20, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := start(t, overShm, shape{workers: 1, servers: 1, edit: func(s *ps.Settings) { s.InPlaceBytes = x.limit }})
			n, s := c.workers[0], c.servers[0]
			push, err := n.Memory().Zeros(tensor.Uint8, x.push)
			require.NoError(t, err)
			pull, err := n.Memory().Zeros(tensor.Uint8, x.push)
			require.NoError(t, err)
			h, err := n.PushPull([]tensor.Tensor{push}, []tensor.Key{1}, []tensor.Tensor{pull}, []tensor.Key{2})
			require.NoError(t, err)
			batch, err := s.GetBatch(limited(t), ps.AnyReady)
			require.NoError(t, err)
			r := batch.Requests[0]
			in, err := r.In(0)
			require.NoError(t, err)
			out, err := r.Out(0)
			require.NoError(t, err)
			push.Bytes()[x.push-1] = 7 // the worker's memory, which a program leaves alone until the answer
			require.Equal(t, x.inPlace, in.Bytes()[x.push-1] == 7, "push")
			out.Bytes()[x.push-1] = 8
			require.Equal(t, x.limit > 0, pull.Bytes()[x.push-1] == 8, "pull")
			_, err = s.Respond([]tensor.Tensor{out}, r.ID)
			require.NoError(t, err)
			require.NoError(t, h.Wait(limited(t)))
			require.Equal(t, byte(8), pull.Bytes()[x.push-1])
		})
	}
}
