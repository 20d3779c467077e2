package ps_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// A node that is closed without a stop is dead for the others, by name; one that was closed after it stopped is not.
func TestCloseWithoutStopIsADeath(t *testing.T) {
	for _, van := range vans() {
		for name, victim := range map[string]func(*cluster) *ps.Node{
			"worker 0": func(c *cluster) *ps.Node { return c.workers[0] },
			"server 0": func(c *cluster) *ps.Node { return c.servers[0] },
		} {
			t.Run(van.name+"/"+name, func(t *testing.T) {
				c := start(t, van, shape{workers: 2, servers: 2})
				gone := victim(c)
				ctx := limited(t)
				waits := make(chan error, 1)
				wait := begun(t, gone)
				go func() { waits <- wait() }()
				require.NoError(t, gone.Close())
				require.ErrorIs(t, <-waits, stepvan.ErrClosed, "whoever waited there")
				for _, n := range c.all[1:] {
					if n == gone {
						continue
					}
					select {
					case <-n.Done():
					case <-ctx.Done():
						require.FailNow(t, "not told", "%s", n)
					}
					require.ErrorIs(t, n.Err(), stepvan.ErrPeerLost)
					var op *stepvan.OpError
					require.ErrorAs(t, n.Err(), &op)
					require.Equal(t, name, op.Peer)
				}
				require.NoError(t, gone.Close(), "again: no effect")
				require.NoError(t, gone.Stop(ctx), "nor has a stop one")
				each(t, c.all, func(n *ps.Node) error {
					if err := n.Stop(ctx); !errors.Is(err, stepvan.ErrPeerLost) {
						return err // of the scheduler and of gone: nil
					}
					return nil
				})
			})
		}
	}
}

// begun is a wait of a node's program: a server's for a batch, a worker's for an answer that does not come.
func begun(t *testing.T, n *ps.Node) (wait func() error) {
	ctx := limited(t)
	if n.Server() != nil {
		return func() error { _, err := n.GetBatch(ctx, ps.LockStep); return err }
	}
	pull := []tensor.Tensor{filled(t, n, 64, 1), filled(t, n, 64, 1)} // one of each server
	h, err := n.PushPull(nil, nil, pull, []tensor.Key{1, 1})
	require.NoError(t, err)
	return func() error { return h.Wait(ctx) }
}

func TestCloseAfterStopIsNoDeath(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{workers: 1, servers: 1})
			c.stop()
			for _, n := range c.all {
				require.NoError(t, n.Close())
				require.NoError(t, n.Err())
			}
		})
	}
}
