package link_test

import (
	"runtime"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
)

// Nothing keeps a closed node in memory, not even a timer that has nothing left to do. In a process that opens and
// closes many nodes those would pile up.
func TestClosedNodesAreGarbage(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		var nodes []weak.Pointer[link.Transport]
		t.Run("life", func(t *testing.T) { // whose end closes both
			p := newPair(t, k, nil)
			nodes = append(nodes, weak.Make(p.a), weak.Make(p.b))
		})
		for i, n := range nodes {
			for range 100 { // stacks of goroutines that are ending hold on for some rounds
				if n.Value() == nil {
					break
				}
				runtime.GC()
			}
			require.Nil(t, n.Value(), "node %d is still in memory", i)
		}
	})
}
