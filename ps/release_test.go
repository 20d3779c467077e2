package ps_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// What a batch has handed out stays the program's after Stop, until it responds.
func TestMemoryOfUnansweredRequestsComesBackAfterStop(t *testing.T) {
	for _, van := range vans() {
		for name, respond := range map[string]func(*ps.Node, []ps.RequestID) error{
			"Respond": func(n *ps.Node, h []ps.RequestID) error { _, err := n.Respond(nil, h[0]); return err },
			"RespondVec": func(n *ps.Node, h []ps.RequestID) error {
				_, err := n.RespondVec(tensor.Tensor{}, nil, h)
				return err
			},
		} {
			t.Run(van.name+"/"+name, func(t *testing.T) {
				c := start(t, van, shape{workers: 1, servers: 1})
				s, w := c.servers[0], c.workers[0]
				buf, err := s.Memory().Empty(tensor.Uint8, 64)
				require.NoError(t, err)
				_, err = s.RegisterRecvBuffer(buf, []ps.Rank{0}, []tensor.Key{1})
				require.NoError(t, err)
				_, err = w.PushPull([]tensor.Tensor{filled(t, w, 64, 1)}, []tensor.Key{1}, nil, nil)
				require.NoError(t, err)
				b, err := s.GetBatch(limited(t), ps.LockStep)
				require.NoError(t, err)
				handlers := []ps.RequestID{b.Requests[0].ID}

				c.stop()
				require.Len(t, b.Requests[0].Pushes(), 1, "it may still be read")
				require.ErrorIs(t, buf.Region().Close(), stepvan.ErrBusy)
				require.ErrorIs(t, respond(s, handlers), stepvan.ErrClosed)
				require.Nil(t, b.Requests[0].Pushes())
				require.NoError(t, buf.Region().Close())
				require.ErrorIs(t, respond(s, handlers), stepvan.ErrClosed, "again: no effect")
			})
		}
	}
}
