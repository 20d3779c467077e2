package strided_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/strided"
)

// randomViews makes a walk over two views of random memory, and a buffer for each.
func randomViews(r *rand.Rand) (w strided.Walk, size int64, to, from []byte) {
	size = int64(1) << r.IntN(5)
	dims := make([]strided.Dim, r.IntN(4))
	for i := range dims {
		dims[i].Extent = 1 + r.Int64N(6)
	}
	lay := func(set func(*strided.Dim, int64)) int64 {
		step := size
		for _, i := range r.Perm(len(dims)) {
			set(&dims[i], step)
			step *= dims[i].Extent + r.Int64N(2)
		}
		return step
	}
	n := lay(func(d *strided.Dim, step int64) { d.To = step })
	m := lay(func(d *strided.Dim, step int64) { d.From = step })
	to, from = make([]byte, n), make([]byte, m)
	for i := range from {
		from[i] = byte(r.Uint32())
	}
	return strided.New(size, dims...), size, to, from
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func TestGatherAndScatterGoByTheOrderOfTheWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for range 2000 {
		w, size, want, from := randomViews(r)
		w.Copy(pointer(want), pointer(from))

		stream := make([]byte, w.Bytes())
		g, s := w.Gather(size), w.Scatter(size)
		g.Copy(pointer(stream), pointer(from))
		require.Equal(t, stream, slices.Concat(w.AppendSources(nil, pointer(from))...))
		got := make([]byte, len(want))
		s.Copy(pointer(got), pointer(stream))
		require.Equal(t, want, got)

		clear(got)
		rest := stream
		for _, p := range w.AppendDestinations(nil, pointer(got)) {
			rest = rest[copy(p, rest):]
		}
		require.Empty(t, rest)
		require.Equal(t, want, got)

		a, b, run := w.Elements()
		again := strided.Restore(a, b, run, w.Loops())
		require.Equal(t, w, again)
	}
}

func TestPartsMakeUpTheWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 2))
	for range 2000 {
		w, size, want, from := randomViews(r)
		w.Copy(pointer(want), pointer(from))
		got := make([]byte, len(want))
		limit := 1 + r.Int64N(100)
		parts := w.Cut(limit)
		var at int64
		for i := range parts.Len() {
			p := parts.At(i)
			require.Equal(t, at, p.At)
			require.LessOrEqual(t, p.Bytes(), limit*size)
			p.Copy(unsafe.Add(pointer(got), p.To), unsafe.Add(pointer(from), p.From))
			at += p.Bytes() / size
		}
		require.Equal(t, w.Bytes(), at*size)
		require.Equal(t, want, got)
	}
}

func TestLongRunsAreCut(t *testing.T) {
	w := strided.New(4, strided.Dim{Extent: 3, To: 4096, From: 8192}, strided.Dim{Extent: 1000, To: 4, From: 4})
	parts := w.Cut(256)
	require.Equal(t, 12, parts.Len())
	last := parts.At(11)
	require.Equal(t, int64(4000-3*1024), last.Bytes())
	require.Equal(t, int64(2*4096+3072), last.To)
	require.Equal(t, int64(2*8192+3072), last.From)
	require.Equal(t, int64(2*1000+768), last.At)
	require.Zero(t, testing.AllocsPerRun(100, func() { last = parts.At(7) }))
}

func TestAViewWithoutElementsHasNoParts(t *testing.T) {
	w := strided.New(4, strided.Dim{Extent: 0, To: 4, From: 4})
	parts := w.Cut(1024)
	require.Zero(t, parts.Len())
	require.Empty(t, w.AppendSources(nil, nil))
}

// The lists of a socket cost nothing when they have room.
func TestListsOfMemoryNeedNoAllocation(t *testing.T) {
	b := make([]byte, 4096)
	w := strided.New(1, strided.Dim{Extent: 8, To: 512, From: 256}, strided.Dim{Extent: 64, To: 1, From: 1})
	list := make([][]byte, 0, 16)
	first := unsafe.Pointer(&b[0])
	require.Zero(t, testing.AllocsPerRun(100, func() {
		list = w.AppendSources(list[:0], first)
		list = w.AppendDestinations(list, first)
	}))
	require.Len(t, list, 16)
}
