package tensor

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// testArena is an arena without memory: it only counts.
func testArena(size int64) *arena {
	return &arena{size: size, free: []extent{{0, size}}}
}

func TestArenaJoinsNeighbours(t *testing.T) {
	const n = 64
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 3, 0, 2}} {
		a := testArena(4 * n)
		var spans []span
		for range 4 {
			s, ok := a.take(n, n)
			require.True(t, ok)
			spans = append(spans, s)
		}
		_, ok := a.take(n, n)
		require.False(t, ok)
		require.Empty(t, a.free)
		for _, i := range order {
			a.give(spans[i])
		}
		require.Equal(t, []extent{{0, 4 * n}}, a.free, order)
		require.Zero(t, a.used)
	}
}

func TestArenaAligns(t *testing.T) {
	a := testArena(3 * 4096)
	small, _ := a.take(64, 64)
	page, ok := a.take(4096, 4096)
	require.True(t, ok)
	require.Equal(t, int64(4096), page.off)
	between, ok := a.take(4096-64, 64)
	require.True(t, ok, "what lies before an aligned span stays usable")
	require.Equal(t, int64(64), between.off)
	a.give(page)
	a.give(small)
	a.give(between)
	require.Equal(t, []extent{{0, 3 * 4096}}, a.free)
}

// Random sizes come and go, against a map of the owners of granules.
func TestArenaAgainstModel(t *testing.T) {
	const size = 1 << 20
	rnd := rand.New(rand.NewPCG(1, 2))
	a := testArena(size)
	owner := make([]int, size/granule)
	live := map[int]span{}
	mark := func(s span, from, to int) {
		for g := s.off / granule; g < (s.off+s.n)/granule; g++ {
			if owner[g] != from {
				t.Fatalf("granule %d of %+v belongs to %d, not to %d", g, s, owner[g], from)
			}
			owner[g] = to
		}
	}
	for id := 1; id < 20000; id++ {
		if rnd.IntN(2) == 0 {
			for k, s := range live {
				mark(s, k, 0)
				a.give(s)
				delete(live, k)
				break
			}
			continue
		}
		n, align := roundUp(1+rnd.Int64N(32<<10), granule), int64(granule)
		if n >= 4096 {
			n, align = roundUp(n, 4096), 4096
		}
		s, ok := a.take(n, align)
		if !ok {
			continue
		}
		require.Zero(t, s.off%align)
		mark(s, 0, id)
		live[id] = s
	}
	for _, s := range live {
		a.give(s)
	}
	require.Equal(t, []extent{{0, size}}, a.free)
	require.Zero(t, a.used)
}
