//go:build cgo

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// collected are the owners that are handed back.
func collected(l *foreignMemory) []uint64 {
	var owners [4]uint64
	return owners[:l.collect(owners[:])]
}

func TestOwnersComeBackWithTheLastUse(t *testing.T) {
	var l foreignMemory
	mem := make([]byte, 64)
	o := l.begin(7)
	a, ra := l.expose(mem, o)
	b, _ := l.expose(mem, o)
	require.NoError(t, ra.Retain())
	l.end(o, true)
	a.Shut()
	b.Shut()
	require.Empty(t, collected(&l), "an operation holds the memory")
	ra.Release()
	require.Equal(t, []uint64{7}, collected(&l))
	require.Empty(t, collected(&l), "once")
	require.Equal(t, 2, l.windows.Unused())
	require.Equal(t, 1, l.loans.Unused())
}

func TestAnOperationThatDidNotComeAboutTellsNoOwner(t *testing.T) {
	var l foreignMemory
	o := l.begin(7)
	w, _ := l.expose(make([]byte, 8), o)
	l.end(o, false)
	w.Shut()
	require.Empty(t, collected(&l))
}

func TestMemoryThatIsShownAgainIsNotTheOld(t *testing.T) {
	var l foreignMemory
	w, r := l.expose(make([]byte, 8), nil)
	old := r.Generation()
	w.Shut()
	again, r2 := l.expose(make([]byte, 8), nil)
	require.Same(t, r, r2)
	require.NotEqual(t, old, r2.Generation())
	again.Shut()
}

func TestOwnersAreHandedBackInOrderAndInParts(t *testing.T) {
	var l foreignMemory
	for owner := range uint64(6) {
		l.end(l.begin(owner+1), true)
	}
	require.Equal(t, []uint64{1, 2, 3, 4}, collected(&l))
	require.Equal(t, []uint64{5, 6}, collected(&l))
}

func TestCopiesEndWithTheirWindow(t *testing.T) {
	var l foreignMemory
	w, r := l.copied([]byte("hello"))
	require.Equal(t, "hello", string(r.Bytes()))
	require.NoError(t, r.Retain())
	w.Shut()
	require.Equal(t, "hello", string(r.Bytes()), "still held")
	r.Release()
	require.Nil(t, w.heap)
}

// Budget: 0 allocations in the steady state.
func TestLendingAllocatesNothing(t *testing.T) {
	var l foreignMemory
	mem := make([]byte, 8)
	round := func() {
		o := l.begin(1)
		w, _ := l.expose(mem, o)
		l.end(o, true)
		w.Shut()
		if len(l.released) != 1 || l.collect(make([]uint64, 1)) != 1 {
			t.Fatal("no owner")
		}
	}
	round()
	require.Zero(t, testing.AllocsPerRun(100, round))
}
