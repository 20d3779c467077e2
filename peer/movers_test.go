package peer

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A task is used again as soon as it is over, also for another number of chunks. Movers that still look at it copy no
// chunk a second time, and none is missing when it is over.
func TestATaskIsUsedAgainForMoreChunks(t *testing.T) {
	var v movers
	v.init(4, func() {})
	var copied [64]atomic.Int32
	over := make(chan struct{}, 1)
	x := &task{copy: func(i int) { copied[i].Add(1) }, done: func() { over <- struct{}{} }}
	for round := range 200_000 {
		chunks := 1 + round%2*(len(copied)-1)
		x.reset(chunks)
		v.start(x)
		x.help()
		<-over
		for i := range copied {
			want := int32(0)
			if i < chunks {
				want = 1
			}
			if got := copied[i].Swap(0); got != want {
				require.Equal(t, want, got, "chunk %d of %d in round %d", i, chunks, round)
			}
		}
	}
	v.close()
}
