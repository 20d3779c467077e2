package strided

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Against a list of all places.
func TestOverlaps(t *testing.T) {
	found := [2]int{}
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 2))
		extents, strides := make([]int64, r.IntN(5)), make([]int64, 5)
		strides = strides[:len(extents)]
		for i := range extents {
			extents[i], strides[i] = 1+int64(r.IntN(6)), int64(r.IntN(40))
			if r.IntN(20) == 0 {
				extents[i] = 0
			}
		}
		seen, want := map[int64]bool{}, false
		if elements(extents) > 0 {
			each(extents, func(index []int64) {
				at := int64(0)
				for i, n := range index {
					at += n * strides[i]
				}
				want = want || seen[at]
				seen[at] = true
			})
		}
		got, sure := Overlaps(extents, strides)
		require.True(t, sure)
		require.Equal(t, want, got, "extents %v strides %v", extents, strides)
		if want {
			found[1]++
		} else {
			found[0]++
		}
	}
	require.Greater(t, found[0], 500)
	require.Greater(t, found[1], 500)
}

// A search that would take for ever is given up, and says so.
func TestOverlapsThatNobodyFinds(t *testing.T) {
	extents := []int64{1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20}
	strides := []int64{1<<40 + 15, 1<<40 + 37, 1<<40 + 7, 1<<40 + 91, 1<<40 + 183, 1<<40 + 201, 1<<40 + 9, 1<<40 + 63}
	overlap, sure := Overlaps(extents, strides)
	require.False(t, overlap && !sure)
	if !overlap {
		require.False(t, sure)
	}
}

func TestOverlapsAllocatesNothing(t *testing.T) {
	extents, strides := []int64{3, 4, 5}, []int64{7, 5, 2}
	require.Zero(t, testing.AllocsPerRun(10, func() { Overlaps(extents, strides) }))
}
