package bulk_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/bulk"
)

const most = 100 << 10

func random(n int) []byte {
	b, r := make([]byte, n), rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// Copy of this package does exactly what copy of Go does, for sizes near the edges and all alignments in a cache line.
func TestCopyIsCopy(t *testing.T) {
	src := random(most)
	for _, n := range []int{0, 1, 63, 64, 4095, 32<<10 - 1, 32 << 10, 32<<10 + 1, 40<<10 + 63, 99 << 10} {
		for at := range 65 {
			from := src[at*7%64:][:n]
			got, want := make([]byte, most), make([]byte, most)
			require.Equal(t, n, bulk.Copy(got[at:at+n], from))
			copy(want[at:at+n], from)
			require.True(t, string(want) == string(got), "%d bytes to %d", n, at)
		}
	}
}

// Parts of something large go past the caches, and are copied as exactly.
func TestCopyPartIsCopy(t *testing.T) {
	const most = 2<<20 + 300
	src := random(most)
	for _, n := range []int{0, 63, 32<<10 - 1, 32 << 10, 32<<10 + 1, 1<<20 - 1, 1 << 20, 1<<20 + 63, 2<<20 + 64} {
		for _, at := range []int{0, 1, 17, 63, 64} {
			from := src[at*7%64:][:n]
			got, want := make([]byte, most), make([]byte, most)
			require.Equal(t, n, bulk.CopyPart(got[at:at+n], from, 1<<40))
			copy(want[at:at+n], from)
			require.True(t, string(want) == string(got), "%d bytes to %d", n, at)
		}
	}
	for _, up := range []int{0, 1} {
		got, want := random(most), random(most)
		bulk.CopyPart(got[1-up:most-up], got[up:most-1+up], 1<<40)
		copy(want[1-up:most-up], want[up:most-1+up])
		require.True(t, string(want) == string(got), "within itself, up: %d", up)
	}
}

func TestCopyTakesTheShorter(t *testing.T) {
	for _, c := range []struct{ dst, src, n int }{{0, most, 0}, {most, 0, 0}, {50 << 10, most, 50 << 10}, {most, 50 << 10, 50 << 10}} {
		src, dst := random(c.src), make([]byte, c.dst)
		require.Equal(t, c.n, bulk.Copy(dst, src))
		require.True(t, string(src[:c.n]) == string(dst[:c.n]))
		for _, b := range dst[c.n:] {
			require.Zero(t, b)
		}
	}
}

// Memory may be moved within itself, up and down.
func TestCopyOverlapping(t *testing.T) {
	for _, distance := range []int{1, 64, 4096, 40 << 10} {
		for _, up := range []bool{true, false} {
			got, want := random(most), random(most)
			to, from := distance, 0
			if !up {
				to, from = 0, distance
			}
			n := most - distance
			bulk.Copy(got[to:to+n], got[from:from+n])
			copy(want[to:to+n], want[from:from+n])
			require.True(t, string(want) == string(got), "by %d, up: %t", distance, up)
		}
	}
}

func TestCopyAllocatesNothing(t *testing.T) {
	src, dst := random(most), make([]byte, most)
	require.Zero(t, testing.AllocsPerRun(10, func() { bulk.Copy(dst, src) }))
	require.Zero(t, testing.AllocsPerRun(10, func() { bulk.CopyPart(dst, src, 1<<40) }))
}
