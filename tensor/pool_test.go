package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func get(t *testing.T, a *Allocator, n int) *Region {
	t.Helper()
	r, err := a.Get(n)
	require.NoError(t, err)
	return r
}

func TestGetReusesWhatWasPut(t *testing.T) {
	a := newAllocator(t, Options{})
	r := get(t, a, 1000)
	x := must(t)(FromRegion(r, 0, Uint8, ShapeOf(1000)))
	id, gen := r.ID(), r.Generation()
	a.Put(r)
	require.ErrorIs(t, x.Check(), stepvan.ErrClosed)
	require.Nil(t, r.Bytes())

	again := get(t, a, 990)
	require.Equal(t, id, again.ID())
	require.Equal(t, gen+1, again.Generation())
	require.Equal(t, 990, again.Len())
	require.Len(t, again.Bytes(), 990)
	for _, err := range []error{x.Check(), x.Retain()} {
		require.ErrorIs(t, err, stepvan.ErrStale)
		require.ErrorContains(t, err, "in use for something else")
	}
	require.Nil(t, x.Bytes())
	must(t)(FromRegion(again, 0, Uint8, ShapeOf(990)))

	other := get(t, a, 5000)
	require.NotEqual(t, id, other.ID())
	a.Put(other)
	a.Put(again)
	s := a.Stats()
	require.Equal(t, uint64(3), s.Gets)
	require.Equal(t, uint64(1), s.Hits)
	require.Equal(t, 2, s.Idle)
	require.Zero(t, s.Regions)
	require.Zero(t, s.Misuses)
}

func TestPutWaitsForOperations(t *testing.T) {
	a := newAllocator(t, Options{})
	r := get(t, a, 100)
	x := must(t)(FromRegion(r, 0, Uint8, ShapeOf(100)))
	require.NoError(t, x.Retain())
	a.Put(r)
	require.NoError(t, x.Check(), "the operation may go on")
	require.Len(t, x.Bytes(), 100)
	require.NoError(t, x.Retain(), "and hand its hold on")
	require.ErrorIs(t, r.Close(), stepvan.ErrBusy)
	other := get(t, a, 100)
	require.NotSame(t, r, other)
	a.Put(other)
	x.Release()
	require.Equal(t, 1, a.Stats().Idle)
	x.Release()
	require.Equal(t, 2, a.Stats().Idle)
	require.ErrorIs(t, x.Check(), stepvan.ErrClosed)
	require.Zero(t, a.Stats().Misuses)
}

func TestPutMistakesAreCounted(t *testing.T) {
	a, b := newAllocator(t, Options{}), newAllocator(t, Options{})
	r := get(t, a, 100)
	b.Put(r)
	require.Equal(t, uint64(1), b.Stats().Misuses)
	require.NotNil(t, r.Bytes())
	a.Put(r)
	a.Put(r)
	require.Equal(t, uint64(1), a.Stats().Misuses)
	require.Equal(t, 1, a.Stats().Idle, "not twice in the pool")
	require.NoError(t, r.Close())
	require.Equal(t, 1, a.Stats().Idle, "what the pool has, Close does not take")
	a.Put(nil)

	held := get(t, a, 100)
	require.NoError(t, held.Retain())
	a.Put(held)
	a.Put(held)
	require.Equal(t, uint64(2), a.Stats().Misuses)
	held.Release()
	require.Equal(t, 1, a.Stats().Idle)
}

func TestPutOfAllocAndCloseOfGet(t *testing.T) {
	a := newAllocator(t, Options{})
	r := alloc(t, a, 100)
	a.Put(r)
	require.Zero(t, a.Stats().Idle)
	require.Zero(t, a.Stats().Misuses)
	r = get(t, a, 100)
	require.NoError(t, r.Close())
	require.Zero(t, a.Stats().Idle)
	require.Zero(t, a.Stats().UsedBytes)
}

func TestIdleBytes(t *testing.T) {
	a := newAllocator(t, Options{IdleBytes: 1 << 20})
	large := get(t, a, 2<<20)
	a.Put(large)
	require.Zero(t, a.Stats().IdleBytes, "larger than all that may be kept")
	var out []*Region
	for range 5 {
		out = append(out, get(t, a, 256<<10))
	}
	for _, r := range out {
		a.Put(r)
		require.LessOrEqual(t, a.Stats().IdleBytes, int64(1<<20))
	}
	require.Equal(t, 1, a.Stats().Idle, "a full pool is emptied; the last one is kept")
}

// Budget of the receive path: nothing for the garbage collector.
func TestHotPathDoesNotAllocate(t *testing.T) {
	a := newAllocator(t, Options{})
	r := get(t, a, 1<<20)
	defer a.Put(r)
	data := make([]float32, 64)
	for name, run := range map[string]func() error{
		"get and put": func() error {
			x, err := a.Get(896 << 10)
			a.Put(x)
			return err
		},
		"get, retain, put, release": func() error {
			x, err := a.Get(100)
			if err == nil {
				err = x.Retain()
			}
			a.Put(x)
			x.Release()
			return err
		},
		"tensor of a region": func() error {
			shape, err := MakeShape(128, 7168)
			if err != nil {
				return err
			}
			x, err := FromRegion(r, 0, Float8E4M3FN, shape)
			if err != nil {
				return err
			}
			if x, err = x.Slice(3, 5); err == nil {
				x, err = x.View(ShapeOf(7168, 2))
			}
			if err == nil {
				err = x.Retain()
			}
			x.Bytes()[0]++
			x.Release()
			return err
		},
		"tensor of a slice": func() error {
			x, err := FromSlice(data, 8, 8)
			if err == nil {
				_, err = As[float32](x)
			}
			return err
		},
	} {
		require.NoError(t, run(), name)
		require.Zero(t, testing.AllocsPerRun(100, func() { _ = run() }), name)
	}
}

func BenchmarkGetPut(b *testing.B) {
	a, err := NewAllocator(Options{})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		r, err := a.Get(896 << 10)
		if err != nil {
			b.Fatal(err)
		}
		a.Put(r)
	}
	require.NoError(b, a.Close())
}

func BenchmarkRetainRelease(b *testing.B) {
	a, err := NewAllocator(Options{})
	require.NoError(b, err)
	x, err := a.Empty(Float32, 16)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Retain(); err != nil {
			b.Fatal(err)
		}
		x.Release()
	}
	require.NoError(b, x.Region().Close())
	require.NoError(b, a.Close())
}
