package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/shm"
)

func TestLocateFindsTheFileOfMemory(t *testing.T) {
	a, err := NewAllocator(Options{Name: "locate"})
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	_, ok := a.Locate(make([]byte, 8))
	require.False(t, ok, "memory of the heap, before there is a file")
	one, err := a.Alloc(100)
	require.NoError(t, err)
	two, err := a.Alloc(5000)
	require.NoError(t, err)
	for _, r := range []*Region{one, two} {
		b := r.Bytes()
		fd, off, _ := r.FD()
		p, ok := a.Locate(b[3:10])
		require.True(t, ok)
		require.Equal(t, fd, p.FD)
		require.Equal(t, off+3, p.Offset)
		require.Same(t, &b[3], &p.Memory[p.Offset])
		require.NotZero(t, p.File)
	}
	_, ok = a.Locate(make([]byte, 8))
	require.False(t, ok, "memory of the heap")
	_, ok = a.Locate(nil)
	require.False(t, ok, "no memory")
	b := two.Bytes()
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = a.Locate(b) }))
	require.NoError(t, one.Close())
	require.NoError(t, two.Close())
}

func TestWatchHearsOfFilesThatGo(t *testing.T) {
	a, err := NewAllocator(Options{Name: "watch"})
	require.NoError(t, err)
	var gone []uint64
	stop := a.Watch(func(file uint64) { gone = append(gone, file) })
	r, err := a.Alloc(1 << 20)
	require.NoError(t, err)
	p, ok := a.Locate(r.Bytes())
	require.True(t, ok)
	b := r.Bytes()
	require.NoError(t, r.Close())
	require.NoError(t, a.Trim())
	require.Equal(t, []uint64{p.File}, gone)
	_, ok = a.Locate(b)
	require.False(t, ok, "a file that is gone")
	stop()
	r, err = a.Alloc(1 << 20)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NoError(t, a.Close())
	require.Len(t, gone, 1)
}

// What an earlier watcher gives back is there when a later one hears of the file.
func TestWatchersHearInOrder(t *testing.T) {
	a, err := NewAllocator(Options{Name: "order"})
	require.NoError(t, err)
	var heard []int
	for i := range 16 {
		stop := a.Watch(func(uint64) { heard = append(heard, i) })
		if i == 7 {
			stop()
		} else {
			defer stop()
		}
	}
	r, err := a.Alloc(1 << 20)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NoError(t, a.Trim())
	require.NoError(t, a.Close())
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15}, heard)
}

// Memory that is in no file has its arena too, which peers cannot map.
func TestFindFindsMemoryThatIsInNoFile(t *testing.T) {
	a, err := NewAllocator(Options{Name: "find"})
	require.NoError(t, err)
	mem, err := shm.Anonymous(1 << 20)
	require.NoError(t, err)
	ar := newArena(mem, false)
	require.NoError(t, a.arenas.publish(ar))
	r, err := a.Alloc(100)
	require.NoError(t, err)
	b := r.Bytes()
	_, ok := a.Locate(b)
	require.False(t, ok)
	p, ok := a.Find(b[1:])
	require.True(t, ok)
	require.Equal(t, -1, p.FD)
	require.Equal(t, ar.id, p.File)
	require.NotEqual(t, p.File, NewFileNumber())
	require.Same(t, &b[1], &p.Memory[p.Offset])
	require.NoError(t, r.Close())
	require.NoError(t, a.Close())
}

// An arena stays mapped until the last keeper of it has called unmap.
func TestKeepersDecideWhenAnArenaIsUnmapped(t *testing.T) {
	a, err := NewAllocator(Options{Name: "keep"})
	require.NoError(t, err)
	var unmaps []func()
	var dropped []uint64
	a.Watch(func(file uint64) { dropped = append(dropped, file) })
	keep := func(file uint64, unmap func()) bool {
		require.Equal(t, []uint64{file}, dropped, "behind the watchers")
		unmaps = append(unmaps, unmap)
		return true
	}
	stops := []func(){
		a.Keep(keep), a.Keep(func(uint64, func()) bool { return false }), a.Keep(keep),
		a.Keep(func(_ uint64, unmap func()) bool { unmap(); return true }),
	}
	r, err := a.Alloc(1 << 20)
	require.NoError(t, err)
	b := r.Bytes()
	require.NoError(t, r.Close())
	require.NoError(t, a.Trim())
	_, ok := a.Find(b)
	require.False(t, ok)
	require.Zero(t, a.Stats().HeldBytes)
	require.Len(t, unmaps, 2)
	b[0] = 1
	unmaps[0]()
	b[0] = 2
	unmaps[1]()
	require.Error(t, shm.Unmapped([][]byte{b}))
	for _, stop := range stops {
		stop()
	}
	require.NoError(t, a.Close())
}
