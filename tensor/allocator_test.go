package tensor

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
)

func newAllocator(t *testing.T, opt Options) *Allocator {
	t.Helper()
	a, err := NewAllocator(opt)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, a.Close())
		s := a.Stats()
		require.Zero(t, s.Arenas)
		require.Zero(t, s.HeldBytes)
		require.Zero(t, s.IdleBytes)
	})
	return a
}

func alloc(t *testing.T, a *Allocator, n int) *Region {
	t.Helper()
	r, err := a.Alloc(n)
	require.NoError(t, err)
	return r
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{ArenaBytes: -1}, {MaxBytes: -1}, {IdleBytes: -1}, {MaxBytes: 10}, {HugePages: 3}} {
		_, err := NewAllocator(o)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
	}
}

func TestAllocAligns(t *testing.T) {
	a := newAllocator(t, Options{})
	page := os.Getpagesize()
	require.Zero(t, a.Stats().HeldBytes, "nothing is taken before it is asked for")
	for _, n := range []int{0, 1, 63, 64, 65, 1000, page - 1, page, page + 1, 1 << 20} {
		r := alloc(t, a, n)
		defer func() { require.NoError(t, r.Close()) }()
		require.Equal(t, n, r.Len())
		require.Len(t, r.Bytes(), n)
		require.Equal(t, n, cap(r.Bytes()), "no access to the neighbour")
		align := 64
		if n >= page {
			align = page
		}
		require.Zero(t, uintptr(unsafe.Pointer(unsafe.SliceData(r.mem)))%uintptr(align), n)
	}
	require.Equal(t, 10, a.Stats().Regions)
}

func TestEmptyRegionHasAPlace(t *testing.T) {
	a := newAllocator(t, Options{})
	r, s := alloc(t, a, 0), alloc(t, a, 0)
	_, off, _ := r.FD()
	_, off2, _ := s.FD()
	require.NotEqual(t, off, off2)
	require.NotNil(t, r.Bytes())
	require.Equal(t, int64(2*granule), a.Stats().UsedBytes)
	require.NoError(t, r.Close())
	require.NoError(t, s.Close())
}

func TestAllocRefuses(t *testing.T) {
	a := newAllocator(t, Options{})
	for _, n := range []int{-1, math.MinInt, math.MaxInt, maxRegion + 1} {
		_, err := a.Alloc(n)
		require.ErrorIs(t, err, stepvan.ErrInvalid, n)
		_, err = a.Get(n)
		require.ErrorIs(t, err, stepvan.ErrInvalid, n)
	}
	for _, dims := range [][]int64{{-1}, {1 << 62}, {1 << 45}} {
		_, err := a.Empty(Float32, dims...)
		require.ErrorIs(t, err, stepvan.ErrInvalid, dims)
	}
	_, err := a.Zeros(0, 1)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}

func TestEmptyAndZeros(t *testing.T) {
	a := newAllocator(t, Options{})
	x := must(t)(a.Empty(BFloat16, 4, 8))
	require.Equal(t, 64, x.Len())
	x.Bytes()[0] = 7
	require.NoError(t, x.Region().Close())
	y := must(t)(a.Zeros(BFloat16, 4, 8))
	require.Equal(t, make([]byte, 64), y.Bytes(), "the same memory, cleared")
	require.NoError(t, y.Region().Close())
	r, err := a.AllocZeroed(64)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 64), r.Bytes())
	require.NoError(t, r.Close())
}

func TestFromRegion(t *testing.T) {
	a := newAllocator(t, Options{})
	r := alloc(t, a, 100)
	x := must(t)(FromRegion(r, 64, Float32, ShapeOf(3, 3)))
	require.Equal(t, int64(64), x.Offset())
	require.Same(t, r, x.Region())
	x.Bytes()[35] = 9
	require.Equal(t, byte(9), r.Bytes()[99])
	y := must(t)(x.Slice(1, 2))
	require.Equal(t, int64(76), y.Offset())
	require.Len(t, y.Bytes(), 12)
	must(t)(FromRegion(r, 96, Float64, ShapeOf(0)))

	for _, c := range []struct {
		off   int64
		shape Shape
	}{{64, ShapeOf(10)}, {101, ShapeOf(0)}, {-4, ShapeOf(1)}, {math.MaxInt64, ShapeOf(1)}, {0, ShapeOf(1 << 60)}, {2, ShapeOf(1)}, {0, ShapeOf(-1)}} {
		_, err := FromRegion(r, c.off, Float32, c.shape)
		require.ErrorIs(t, err, stepvan.ErrInvalid, c)
	}
	_, err := FromRegion(nil, 0, Float32, ShapeOf(1))
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.NoError(t, r.Close())
	_, err = FromRegion(r, 0, Float32, ShapeOf(1))
	require.ErrorIs(t, err, stepvan.ErrClosed)
}

func TestClosedRegion(t *testing.T) {
	a := newAllocator(t, Options{})
	x := must(t)(a.Empty(Float32, 10))
	r := x.Region()
	require.NoError(t, x.Retain())
	require.NoError(t, r.Retain())
	err := r.Close()
	require.ErrorIs(t, err, stepvan.ErrBusy)
	require.ErrorContains(t, err, "outstanding operations")
	require.True(t, x.Valid(), "a refused Close changes nothing")
	x.Release()
	require.ErrorIs(t, r.Close(), stepvan.ErrBusy)
	r.Release()
	require.NoError(t, r.Close())
	require.NoError(t, r.Close(), "again: no effect")

	require.False(t, x.Valid())
	require.Nil(t, x.Bytes())
	require.Nil(t, r.Bytes())
	require.Equal(t, 40, r.Len())
	for _, err := range []error{x.Check(), x.Retain(), r.Retain()} {
		require.ErrorIs(t, err, stepvan.ErrClosed)
		require.ErrorContains(t, err, "region is closed")
	}
	_, err = As[float32](x)
	require.ErrorIs(t, err, stepvan.ErrClosed)
	y := must(t)(x.Slice(1, 2))
	require.ErrorIs(t, y.Check(), stepvan.ErrClosed)
	_, _, ok := r.FD()
	require.False(t, ok)
	x.Release()
	require.Equal(t, uint64(1), a.Stats().Misuses, "a Release too many is counted")
}

func TestPeersMapRegions(t *testing.T) {
	a := newAllocator(t, Options{})
	r0, r := alloc(t, a, 5000), alloc(t, a, 5000)
	fd, off, ok := r.FD()
	require.True(t, ok)
	peer, err := shm.Map(fd, a.Stats().HeldBytes)
	require.NoError(t, err)
	r.Bytes()[4999] = 42
	require.Equal(t, byte(42), peer.Bytes()[off+4999])
	require.NoError(t, peer.Close())
	require.NoError(t, r.Close())
	require.NoError(t, r0.Close())
}

func TestMemoryIsReused(t *testing.T) {
	a := newAllocator(t, Options{ArenaBytes: 1 << 20})
	for range 1000 {
		r, s := alloc(t, a, 300<<10), alloc(t, a, 200<<10)
		require.NoError(t, r.Close())
		require.NoError(t, s.Close())
	}
	s := a.Stats()
	require.Equal(t, 1, s.Arenas)
	require.Equal(t, int64(1<<20), s.HeldBytes)
	require.Zero(t, s.UsedBytes)
}

func TestArenasGrowAndGo(t *testing.T) {
	a := newAllocator(t, Options{ArenaBytes: 8 << 20, HugePages: HugePagesOff})
	var regions []*Region
	for range 28 {
		regions = append(regions, alloc(t, a, 1<<20))
	}
	s := a.Stats()
	require.Equal(t, 5, s.Arenas, "4, 4, then 8 MiB at a time")
	require.Equal(t, int64(32<<20), s.HeldBytes)
	for _, r := range slices.Backward(regions) {
		require.NoError(t, r.Close())
	}
	s = a.Stats()
	require.Equal(t, 1, s.Arenas, "of the empty arenas the largest stays")
	require.Equal(t, int64(8<<20), s.HeldBytes)
	require.NoError(t, a.Trim())
	require.Zero(t, a.Stats().HeldBytes)
}

func TestLargeRegionHasItsOwnFile(t *testing.T) {
	a := newAllocator(t, Options{ArenaBytes: 1 << 20, HugePages: HugePagesOff})
	small, large := alloc(t, a, 100), alloc(t, a, 3<<20)
	fd1, _, _ := small.FD()
	fd2, off, _ := large.FD()
	require.NotEqual(t, fd1, fd2)
	require.Zero(t, off)
	require.Equal(t, int64(4<<20), a.Stats().HeldBytes)
	require.NoError(t, large.Close())
	require.Equal(t, int64(1<<20), a.Stats().HeldBytes, "its memory goes back at once")
	require.NoError(t, small.Close())
}

// No other region gets room in the file of such a region, before it or behind it.
func TestRegionsWithFilesOfTheirOwn(t *testing.T) {
	a := newAllocator(t, Options{ArenaBytes: 1 << 20, HugePages: HugePagesOff})
	small := alloc(t, a, 100)
	own, err := a.AllocFile(5000)
	require.NoError(t, err)
	tiny, err := a.AllocFile(1)
	require.NoError(t, err)
	require.EqualValues(t, 1<<20+8192+4096, a.Stats().HeldBytes)
	others := []*Region{small, alloc(t, a, 100), alloc(t, a, 3000), alloc(t, a, 4096), alloc(t, a, 3<<20), alloc(t, a, 100)}
	files := map[uint64]int{}
	for _, r := range append(others, own, tiny) {
		at, ok := a.Locate(r.Bytes())
		require.True(t, ok)
		files[at.File]++
	}
	require.Equal(t, map[uint64]int{small.span.arena.id: 5, own.span.arena.id: 1, tiny.span.arena.id: 1, own.span.arena.id + 2: 1}, files)
	require.NoError(t, own.Close())
	require.NoError(t, tiny.Close())
	require.EqualValues(t, 4<<20, a.Stats().HeldBytes, "their memory goes back at once")
	for _, r := range others {
		require.NoError(t, r.Close())
	}

	_, err = a.AllocFile(-1)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, err = a.AllocFile(maxRegion + 1)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	full := newAllocator(t, Options{MaxBytes: 1 << 20})
	all := alloc(t, full, 1<<20)
	_, err = full.AllocFile(1)
	require.ErrorIs(t, err, stepvan.ErrWouldBlock)
	require.NoError(t, all.Close())
}

func TestMaxBytes(t *testing.T) {
	a := newAllocator(t, Options{Name: "node 3", MaxBytes: 3 << 20, MaxBytesSetting: "STEPVAN_POOL_BYTES"})
	r := alloc(t, a, 2<<20)
	_, err := a.Alloc(2 << 20)
	require.ErrorIs(t, err, stepvan.ErrWouldBlock)
	require.ErrorContains(t, err, `"node 3" has taken 2097152 bytes`)
	require.ErrorContains(t, err, "raise STEPVAN_POOL_BYTES")
	s := alloc(t, a, 1<<20) // what is left fits, although a usual arena does not
	require.NoError(t, s.Close())
	require.NoError(t, r.Close())
	large := alloc(t, a, 3<<20) // empty arenas make room
	require.NoError(t, large.Close())
	_, err = a.Alloc(4 << 20)
	require.ErrorIs(t, err, stepvan.ErrWouldBlock)
}

func TestIdleMemoryMakesRoom(t *testing.T) {
	a := newAllocator(t, Options{MaxBytes: 2 << 20})
	r, err := a.Get(2 << 20)
	require.NoError(t, err)
	a.Put(r)
	require.Equal(t, int64(2<<20), a.Stats().IdleBytes)
	s := alloc(t, a, 1<<20)
	require.Zero(t, a.Stats().IdleBytes)
	require.NoError(t, s.Close())
}

// Every second small region stays: large ones must still find room, in memory
// that does not grow with each round.
func TestFragmentation(t *testing.T) {
	a := newAllocator(t, Options{ArenaBytes: 4 << 20})
	rnd := rand.New(rand.NewPCG(3, 4))
	live := make([]*Region, 0, 512)
	const working = 8 << 20 // bytes live at a time, at most
	used := 0
	for range 20000 {
		n := 1 << rnd.IntN(18)
		n += rnd.IntN(n)
		for used+n > working {
			i := rnd.IntN(len(live))
			used -= live[i].Len()
			require.NoError(t, live[i].Close())
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		}
		live = append(live, alloc(t, a, n))
		used += n
	}
	require.LessOrEqual(t, a.Stats().HeldBytes, int64(2*working))
	for _, r := range live {
		require.NoError(t, r.Close())
	}
	for _, ar := range a.arenas.arenas {
		require.Equal(t, []extent{{0, ar.size}}, ar.free)
	}
}

func TestConcurrentAllocAndFree(t *testing.T) {
	a := newAllocator(t, Options{ArenaBytes: 1 << 20, IdleBytes: 1 << 20})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() { churn(t, a, uint64(g)) })
	}
	wg.Go(func() {
		for range 100 {
			a.Stats()
			a.Leaks()
			if err := a.Trim(); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	require.Zero(t, a.Stats().Regions)
	require.Zero(t, a.Stats().Misuses)
}

// churn takes regions of both sorts, writes its mark at both ends, and finds it
// there when it gives them back.
func churn(t *testing.T, a *Allocator, who uint64) {
	rnd := rand.New(rand.NewPCG(who, 1))
	var mine []*Region
	for range 500 {
		n := 16 + rnd.IntN(1<<(5+rnd.IntN(14)))
		get := a.Alloc
		if rnd.IntN(2) == 0 {
			get = a.Get
		}
		r, err := get(n)
		if err != nil {
			t.Error(err)
			return
		}
		b := r.Bytes()
		binary.NativeEndian.PutUint64(b, who)
		binary.NativeEndian.PutUint64(b[n-8:], who)
		if mine = append(mine, r); len(mine) > 8 {
			giveBack(t, a, mine[0], who, rnd.IntN(2) == 0)
			mine = mine[1:]
		}
	}
	for _, r := range mine {
		giveBack(t, a, r, who, false)
	}
}

func giveBack(t *testing.T, a *Allocator, r *Region, who uint64, put bool) {
	b := r.Bytes()
	if binary.NativeEndian.Uint64(b) != who || binary.NativeEndian.Uint64(b[len(b)-8:]) != who {
		t.Errorf("region %d was overwritten", r.ID())
	}
	if put {
		a.Put(r)
	} else if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestHugePages(t *testing.T) {
	a := newAllocator(t, Options{HugePages: HugePagesRequired, ArenaBytes: 4096})
	r, err := a.Alloc(100)
	if err != nil {
		require.ErrorContains(t, err, "shared memory")
		return
	}
	require.Equal(t, int64(shm.HugePageBytes), a.Stats().HugeBytes)
	require.NoError(t, r.Close())
}
