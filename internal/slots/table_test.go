package slots

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIDsNameTheirValueUntilItIsFreed(t *testing.T) {
	var tab Table[string]
	a, p := tab.Take()
	b, q := tab.Take()
	*p, *q = "a", "b"
	require.NotEqual(t, a, b)
	require.Same(t, q, tab.Find(b))
	require.Equal(t, 2, tab.Used())
	require.True(t, tab.Free(a))
	require.False(t, tab.Free(a), "freed twice")
	require.Nil(t, tab.Find(a))
	require.Nil(t, tab.Peek(a))
	require.Nil(t, tab.Pin(a))
	c, r := tab.Take()
	require.Equal(t, a.Index(), c.Index(), "the slot is used again")
	require.Same(t, p, r)
	require.Equal(t, "a", *r, "with its content")
	require.Nil(t, tab.Find(a), "under another ID")
	require.Equal(t, 2, tab.Len())
}

func TestIDsThatNameNothing(t *testing.T) {
	var tab Table[int]
	for range 2 { // empty, and with one value
		for _, id := range []ID{0, 1, makeID(0, 2), makeID(5, 1), makeID(blockSlots, 1), makeID(math.MaxUint32, 1), math.MaxUint64} {
			require.Nil(t, tab.Find(id), "%x", id)
			require.False(t, tab.Free(id), "%x", id)
			require.False(t, tab.Named(id), "%x", id)
		}
		tab.Take()
	}
}

func TestNamed(t *testing.T) {
	var tab Table[int]
	id, _ := tab.Take()
	require.True(t, tab.Named(id))
	tab.Free(id)
	require.True(t, tab.Named(id), "it did once")
	require.False(t, tab.Named(id+1<<32), "it is the next ID of the slot")
	next, _ := tab.Take()
	require.Equal(t, id+1<<32, next)
	require.True(t, tab.Named(next))
}

func TestPinnedValuesAreNotFreed(t *testing.T) {
	var tab Table[int]
	id, p := tab.Take()
	require.Same(t, p, tab.Pin(id))
	require.Same(t, p, tab.Pin(id))
	tab.Unpin(id)
	require.False(t, tab.Free(id))
	require.Same(t, p, tab.Find(id))
	tab.Unpin(id)
	require.True(t, tab.Free(id))
}

func TestTheGenerationThatWrapsIsNeverZero(t *testing.T) {
	var tab Table[int]
	tab.Take()
	tab.at(0).life.Store(math.MaxUint32 << 32)
	require.True(t, tab.Free(makeID(0, math.MaxUint32)))
	id, _ := tab.Take()
	require.Equal(t, makeID(0, 1), id)
}

func TestValuesKeepTheirAddressWhileTheTableGrows(t *testing.T) {
	var tab Table[int]
	all := map[ID]*int{}
	for i := range 5 * blockSlots {
		id, p := tab.Take()
		*p = i
		all[id] = p
	}
	require.Len(t, all, 5*blockSlots)
	for id, p := range all {
		require.Same(t, p, tab.Find(id))
	}
	for id, p := range tab.All() {
		require.Same(t, all[id], p)
		Prefetch(tab.Find(id))
		require.True(t, tab.Free(id))
	}
	require.Zero(t, tab.Used())
	for range tab.All() {
		t.Fatal("a free slot is no value")
	}
	require.Equal(t, 5*blockSlots, tab.Len())
}

// Any goroutine may look a value up while the owner takes and frees it.
func TestLookUpsNeedNoLock(t *testing.T) {
	var tab Table[int]
	var wg sync.WaitGroup
	ids := make(chan ID, 100)
	for range 2 {
		wg.Go(func() {
			for id := range ids {
				tab.Peek(id)
				if tab.Pin(id) != nil {
					tab.Unpin(id)
				}
			}
		})
	}
	for range 2000 {
		id, _ := tab.Take()
		ids <- id
		for !tab.Free(id) { // it is pinned
			continue
		}
	}
	close(ids)
	wg.Wait()
	require.Zero(t, tab.Used())
}

// FuzzIDs compares a table with a map, for IDs that were given out and for others.
func FuzzIDs(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 2}, uint64(1<<32))
	f.Add([]byte{0, 1, 0, 1, 0, 1}, uint64(3<<32))
	f.Fuzz(func(t *testing.T, steps []byte, wrong uint64) {
		var tab Table[ID]
		named, once := map[ID]*ID{}, []ID{}
		check := func(id ID) {
			require.True(t, tab.Find(id) == named[id], "%x", id)
		}
		for _, step := range steps {
			if step%2 == 0 || len(once) == 0 {
				id, p := tab.Take()
				require.NotContains(t, once, id, "no ID is given out twice")
				*p, named[id] = id, p
				once = append(once, id)
			} else {
				id := once[int(step)%len(once)]
				require.Equal(t, named[id] != nil, tab.Free(id))
				delete(named, id)
			}
			check(ID(wrong))
			require.Equal(t, named[ID(wrong)] != nil, tab.Free(ID(wrong)))
			delete(named, ID(wrong))
		}
		for _, id := range once {
			check(id)
			require.True(t, tab.Named(id))
			for bit := range 64 {
				check(id ^ 1<<bit)
			}
		}
		require.Equal(t, len(named), tab.Used())
	})
}

// Budget: 0 allocations.
func TestAllocates(t *testing.T) {
	var tab Table[[]byte]
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		id, p := tab.Take()
		*p = (*p)[:0]
		if tab.Find(id) == nil || tab.Peek(id) == nil || tab.Pin(id) == nil {
			t.Fatal("it names nothing")
		}
		tab.Unpin(id)
		tab.Free(id)
	}))
}

func BenchmarkTakeFindFree(b *testing.B) {
	var tab Table[int]
	for b.Loop() {
		id, _ := tab.Take()
		if tab.Find(id) == nil {
			b.Fatal("it names nothing")
		}
		tab.Free(id)
	}
}

// A table grows in steps of its size, so many values cost few allocations.
func TestATableGrowsRarely(t *testing.T) {
	const values = 1 << 16
	var tab Table[uint64]
	allocs := testing.AllocsPerRun(1, func() {
		tab = Table[uint64]{}
		for i := range uint64(values) {
			_, p := tab.Take()
			*p = i
		}
	})
	require.Less(t, allocs, 150.)
	require.Equal(t, values, tab.Len())
	for i := range uint32(values) {
		require.EqualValues(t, i, *tab.Find(makeID(i, 1)))
	}
	require.Nil(t, tab.Find(makeID(values, 1)))
}
