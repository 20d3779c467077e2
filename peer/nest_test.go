package peer

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/strided"
)

// Boxes of any range have the elements of the range, each once and in its order, and they are few.
func TestBoxesOfANest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var n nest
		n.rank = r.IntN(4)
		total := int64(1)
		for i := range n.rank {
			n.dims[i] = strided.Dim{Extent: 1 + r.Int64N(6), To: 1000 * r.Int64N(50), From: r.Int64N(50)}
			total *= n.dims[i].Extent
		}
		var want []strided.Dim // the place of each element
		for e := range total {
			at, rest := strided.Dim{}, e
			for i := n.rank - 1; i >= 0; i-- {
				d := n.dims[i]
				at.To, at.From = at.To+rest%d.Extent*d.To, at.From+rest%d.Extent*d.From
				rest /= d.Extent
			}
			want = append(want, at)
		}
		lo := r.Int64N(total)
		hi := lo + r.Int64N(total-lo+1)
		var got []strided.Dim
		count := 0
		for b := n.between(lo, hi); b.next(); count++ {
			places := []strided.Dim{{To: b.to, From: b.from}}
			for _, d := range b.walk() {
				var next []strided.Dim
				for _, p := range places {
					for i := range d.Extent {
						next = append(next, strided.Dim{To: p.To + i*d.To, From: p.From + i*d.From})
					}
				}
				places = next
			}
			got = append(got, places...)
		}
		require.Equal(t, append([]strided.Dim(nil), want[lo:hi]...), got, "%v %d %d", n.loops(), lo, hi)
		require.LessOrEqual(t, count, max(1, 2*n.rank-1), "%v %d %d", n.loops(), lo, hi)
	}
}

func TestRangesThatAreOneBox(t *testing.T) {
	n := nest{rank: 3}
	n.dims = [strided.MaxRank]strided.Dim{{Extent: 5, To: 100}, {Extent: 4, To: 10}, {Extent: 3, To: 1}}
	for most, want := range map[int64]int64{1: 1, 2: 2, 3: 3, 5: 3, 11: 9, 12: 12, 30: 24, 60: 60, 100: 60} {
		require.Equal(t, want, n.whole(most), "%d", most)
	}
	require.Equal(t, int64(12), n.toStream(2).dims[0].To/2)
	require.Equal(t, int64(6), n.fromStream(2).dims[1].From)
	require.Equal(t, int64(100), n.within().dims[0].From)
}

func TestARingIsFull(t *testing.T) {
	r := ring[int]{items: make([]int, 2)}
	for round := range 5 {
		require.True(t, r.push(round))
		require.True(t, r.push(-round))
		require.False(t, r.push(7))
		require.Equal(t, round, r.pop())
		require.Equal(t, -round, r.pop())
	}
	require.False(t, new(ring[int]).push(1))
}
