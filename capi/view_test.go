//go:build cgo

package main

import (
	"math"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/tensor"
)

// countedNumbers is memory of n float64 from 0 on, as C would have it.
func countedNumbers(t *testing.T, n int) []float64 {
	all := make([]float64, n)
	var pin runtime.Pinner
	t.Cleanup(pin.Unpin)
	pin.Pin(&all[0])
	for i := range all {
		all[i] = float64(i)
	}
	return all
}

// viewOf makes a view of C. dims has the extents and then as many strides.
func viewOf(first *float64, dims ...int64) cView {
	v := cView{data: unsafe.Pointer(first), dtype: cUint8(tensor.Float64), rank: cUint8(len(dims) / 2)}
	for i := range len(dims) / 2 {
		v.shape[i], v.strides[i] = cInt64(dims[i]), cInt64(dims[len(dims)/2+i])
	}
	return v
}

// elements copies a view of Go.
func elements(t *testing.T, s *tensor.Strided) []float64 {
	to := make([]float64, s.Len()/8)
	flat, err := tensor.FromSlice(to)
	require.NoError(t, err)
	shaped, err := flat.View(s.Shape())
	require.NoError(t, err)
	whole := shaped.Strided()
	require.NoError(t, whole.CopyFrom(s))
	return to
}

func TestViewsOfC(t *testing.T) {
	all := countedNumbers(t, 24)
	c := []cView{
		viewOf(&all[0], 2, 3, 12, 4), viewOf(&all[0], 3, 2, 4, 12), viewOf(&all[5], 2, 2, 0, 1),
		viewOf(&all[23]), viewOf(nil, 3, 0, 1<<40, 1), viewOf(&all[23], 1, 1, 1<<40, 7),
	}
	k := newCall(91)
	views, err := k.views(nil, c)
	require.NoError(t, err)
	for i, want := range [][]float64{{0, 4, 8, 12, 16, 20}, {0, 12, 4, 16, 8, 20}, {5, 6, 5, 6}, {23}, {}, {23}} {
		require.Equal(t, want, elements(t, &views[i]), i)
	}
	memory := views[0].Memory()
	require.Equal(t, 21*8, memory.Len(), "from the first element to the last")
	require.True(t, memory.Foreign())
	require.NoError(t, views[0].Retain())
	k.end(true)
	require.Empty(t, back(), "an operation holds a view")
	require.Equal(t, []float64{0, 4, 8, 12, 16, 20}, elements(t, &views[0]))
	views[0].Release()
	require.Equal(t, []uint64{91}, back())
	require.Error(t, views[0].Check())
}

func TestViewsInMemoryWithANumber(t *testing.T) {
	c := &cluster{t: t, e: new(cError)}
	defer c.pin.Unpin()
	all := countedNumbers(t, 12)
	number := pinned[cUint64](c, 1)
	c.ok(goWrap(unsafe.Pointer(&all[2]), 8*8, 0, number, c.e))
	for first, ok := range map[int]bool{1: false, 2: true, 3: true, 4: false} {
		v := viewOf(&all[first], 2, 2, 6, 1) // eight elements from the first to the last, or seven
		v.shape[1] = cInt64(min(2, max(1, 4-first)))
		v.memory = *number
		for _, owner := range []cUint64{0, 92} {
			k := newCall(owner)
			_, err := k.views(nil, []cView{v})
			require.Equal(t, ok, err == nil, "%d: %v", first, err)
			k.end(false)
		}
	}
	c.ok(goFree(*number, c.e))
	v := viewOf(&all[2])
	v.memory = *number
	k := newCall(0)
	defer k.end(false)
	_, err := k.views(nil, []cView{v})
	require.Equal(t, codeStale, codeOf(err))
	require.Empty(t, back())
}

func TestViewsThatAreRefused(t *testing.T) {
	all := countedNumbers(t, 24)
	for want, change := range map[string]func(v *cView){
		"9 dimensions (want at most 8)":          func(v *cView) { v.rank = 9 },
		"flags: some do not exist (got 0x1":      func(v *cView) { v.flags = 1 },
		"data of 168 bytes must not be NULL":     func(v *cView) { v.data = nil },
		"do not fit into an address space":       func(v *cView) { v.data = unsafe.Add(nil, uintptr(math.MaxInt64)) },
		"not aligned":                            func(v *cView) { v.data = unsafe.Add(v.data, 1) },
		"is not an element type":                 func(v *cView) { v.dtype = 200 },
		"dimension 1 of a shape is -1":           func(v *cView) { v.shape[1] = -1 },
		"more elements than 63 bits can count":   func(v *cView) { v.shape[0] = math.MaxInt64 },
		"make a copy that is not reversed":       func(v *cView) { v.strides[1] = -4 },
		"leaves the address space":               func(v *cView) { v.strides[0] = math.MaxInt64 },
		"is not the number of a memory":          func(v *cView) { v.memory = 77 },
		"there is no such device (got 99 and 0,": func(v *cView) { v.device_kind = 99 },
	} {
		v := viewOf(&all[0], 2, 3, 12, 4)
		change(&v)
		free := foreign.windows.Unused()
		k := newCall(93)
		_, err := k.views(nil, []cView{v})
		k.end(false)
		require.ErrorContains(t, err, want)
		require.Contains(t, []cCode{codeInvalid, codeStale}, codeOf(err), want)
		require.LessOrEqual(t, free, foreign.windows.Unused(), want)
		require.Empty(t, back(), want)
	}
}

// Budget: 0 allocations in the steady state.
func TestViewsAllocateNothing(t *testing.T) {
	all := countedNumbers(t, 24)
	c := []cView{viewOf(&all[0], 2, 3, 12, 4)}
	views := make([]tensor.Strided, 0, 1)
	var owners [1]uint64
	round := func() {
		k := newCall(94)
		got, err := k.views(views, c)
		k.end(true)
		if err != nil || len(got) != 1 || foreign.collect(owners[:]) != 1 {
			t.Fatal(err)
		}
	}
	round()
	if got := testing.AllocsPerRun(100, round); !race.Enabled {
		require.Zero(t, got)
	}
}
