package rdma

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/van"
)

// A grant that ends before the peer was told of it leaves nothing behind, also where nothing is ever sent.
func TestGrantsThatNobodyHearsOf(t *testing.T) {
	d := newDuo(t, Options{})
	memory := registered(t, 4096, d.vans[0])
	for range 3 {
		g, err := d.ends[0].Grant(memory, 1, van.RightWrite)
		require.NoError(t, err)
		require.NoError(t, d.ends[0].Withdraw(g.ID, 7))
		d.completed(0, 7)
	}
	require.Empty(t, d.ends[0].out.grants.unsent)
}
