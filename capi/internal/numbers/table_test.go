package numbers

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumbersNameTheirValueUntilTaken(t *testing.T) {
	tab := Table[string]{Kind: 3}
	a, b := tab.Put("a"), tab.Put("b")
	require.NotZero(t, a)
	require.NotEqual(t, a, b)
	got, ok := tab.Get(b)
	require.True(t, ok)
	require.Equal(t, "b", got)
	got, ok = tab.Take(a)
	require.True(t, ok)
	require.Equal(t, "a", got)
	_, ok = tab.Get(a)
	require.False(t, ok)
	_, ok = tab.Take(a)
	require.False(t, ok)
	c := tab.Put("c")
	require.Equal(t, a.slot().Index(), c.slot().Index(), "the slot is used again")
	require.NotEqual(t, a, c)
	_, ok = tab.Get(a)
	require.False(t, ok, "under another number")
}

func TestNumbersThatNameNothing(t *testing.T) {
	tab, other := Table[int]{Kind: 1}, Table[int]{Kind: 2}
	for _, id := range []ID{0, 1, 1 << 32, math.MaxUint64} {
		_, ok := tab.Get(id)
		require.False(t, ok, "of an empty table")
	}
	id := tab.Put(7)
	for _, wrong := range []ID{0, id + 1, id - 1, id + 1<<32, id ^ 1<<31, other.Put(7), math.MaxUint64} {
		_, ok := tab.Get(wrong)
		require.False(t, ok, "%x", wrong)
		_, ok = tab.Take(wrong)
		require.False(t, ok, "%x", wrong)
	}
}

func TestTakeIf(t *testing.T) {
	var tab Table[int]
	var ids []ID
	for i := range 6 {
		ids = append(ids, tab.Put(i))
	}
	require.Equal(t, []int{0, 2, 4}, tab.TakeIf(func(v int) bool { return v%2 == 0 }))
	for i, id := range ids {
		_, ok := tab.Get(id)
		require.Equal(t, i%2 == 1, ok)
	}
	require.Empty(t, tab.TakeIf(func(v int) bool { return v%2 == 0 }))
}

func TestFates(t *testing.T) {
	tab, other := Table[int]{Kind: 1}, Table[int]{Kind: 2}
	require.Equal(t, Unknown, tab.Fate(0))
	taken, swept, named := tab.Put(1), tab.Put(2), tab.Put(3)
	for _, wrong := range []ID{0, named + 1, named + 1<<32, taken - 1<<32, other.Put(1), math.MaxUint64} {
		require.Equal(t, Unknown, tab.Fate(wrong), "%x", wrong)
	}
	tab.Take(taken)
	tab.TakeIf(func(v int) bool { return v == 2 })
	require.Equal(t, []Fate{Taken, Swept, Named}, []Fate{tab.Fate(taken), tab.Fate(swept), tab.Fate(named)})
	again := tab.Put(4)
	require.Equal(t, swept.slot().Index(), again.slot().Index())
	require.Equal(t, []Fate{Swept, Named}, []Fate{tab.Fate(swept), tab.Fate(again)})
	tab.TakeIf(func(v int) bool { return v == 4 })
	require.Equal(t, []Fate{Taken, Swept}, []Fate{tab.Fate(swept), tab.Fate(again)}, "the last one is remembered")
}

func TestOneOfManyTakes(t *testing.T) {
	var tab Table[int]
	for range 100 {
		id := tab.Put(1)
		var wg sync.WaitGroup
		taken := make(chan bool, 4)
		for range cap(taken) {
			wg.Go(func() {
				_, ok := tab.Take(id)
				taken <- ok
			})
		}
		wg.Wait()
		n := 0
		for range cap(taken) {
			if <-taken {
				n++
			}
		}
		require.Equal(t, 1, n)
	}
	require.Equal(t, 1, tab.slots.Len())
}

// Budget: 0 allocations.
func TestGetAllocatesNothing(t *testing.T) {
	var tab Table[*int]
	id := tab.Put(new(int))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, ok := tab.Get(id); !ok {
			t.Fatal("gone")
		}
	}))
}
