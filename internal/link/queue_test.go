package link

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQueueKeepsTheOrder(t *testing.T) {
	type element struct {
		n    int
		link queueLink[element]
	}
	var q queue[element]
	all := make([]element, 5)
	for range 2 { // elements can be pushed again
		require.True(t, q.empty())
		require.Nil(t, q.first())
		require.Nil(t, q.last())
		for i := range all {
			all[i].n = i
			q.push(&all[i], &all[i].link)
			require.Same(t, &all[0], q.first())
			require.Same(t, &all[i], q.last())
		}
		for i := range all {
			require.Equal(t, i, q.pop().n)
		}
	}
}
