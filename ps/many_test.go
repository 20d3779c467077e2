package ps_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// A request of as many tensors as the settings allow passes on every van.
func TestMostTensorsInOneRequest(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{workers: 1, servers: 1})
			half := ps.DefaultSettings().MaxTensors / 2
			n := c.workers[0]
			var push, pull []tensor.Tensor
			var pushKeys, pullKeys []tensor.Key
			for i := range half {
				a, err := n.Memory().Empty(tensor.Uint8, 1, 1, 1, 1, 1, 1, 1, 8)
				require.NoError(t, err)
				a.Bytes()[7] = byte(i)
				b, err := n.Memory().Empty(tensor.Uint8, 1, 1, 1, 1, 1, 1, 1, 8)
				require.NoError(t, err)
				push, pull = append(push, a), append(pull, b)
				pushKeys, pullKeys = append(pushKeys, tensor.Key(i)), append(pullKeys, tensor.Key(1<<32|i))
			}
			served := make(chan error, 1)
			go func() { served <- serve(limited(t), c.servers[0]) }()
			h, err := n.PushPull(push, pushKeys, pull, pullKeys)
			require.NoError(t, err)
			require.NoError(t, h.Wait(limited(t)))
			for i, p := range pull {
				require.Equal(t, byte(i)+1, p.Bytes()[7])
			}
			each(t, c.all, func(n *ps.Node) error { return n.Stop(limited(t)) })
			require.NoError(t, <-served)
		})
	}
}
