package tensor

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestLeakReport(t *testing.T) {
	a, err := NewAllocator(Options{Name: "worker 2", Debug: true})
	require.NoError(t, err)
	kept, pooled, closed := alloc(t, a, 1000), get(t, a, 500), alloc(t, a, 1)
	require.NoError(t, closed.Close())
	require.NoError(t, pooled.Retain())
	x := must(t)(a.Zeros(Float32, 8))
	require.NoError(t, x.Region().Close())

	leaks := a.Leaks()
	require.Len(t, leaks, 2)
	require.Equal(t, pooled.ID(), leaks[0].ID)
	require.Equal(t, 1, leaks[0].Holds)
	require.Equal(t, 500, leaks[0].Bytes)
	require.Equal(t, kept.ID(), leaks[1].ID)
	require.Equal(t, uint32(1), leaks[1].Generation)
	require.Contains(t, leaks[1].Stack, "TestLeakReport")

	err = a.Close()
	require.ErrorIs(t, err, stepvan.ErrBusy)
	var report *LeakError
	require.True(t, errors.As(err, &report))
	require.Equal(t, leaks, report.Leaks)
	require.ErrorContains(t, err, `allocator "worker 2": 2 regions are still open`)
	require.ErrorContains(t, err, "1000 bytes, held by 0 operations, from github.com/stepvan/stepvan/tensor.alloc ")
	require.NotContains(t, err.Error(), "Options.Debug")

	require.Len(t, kept.Bytes(), 1000, "what is out stays usable")
	kept.Bytes()[999] = 1
	require.NoError(t, kept.Close())
	require.ErrorContains(t, a.Close(), "1 regions")
	a.Put(pooled)
	pooled.Release()
	require.NoError(t, a.Close())
	require.Zero(t, a.Stats().HeldBytes)
}

func TestLeakReportIsShort(t *testing.T) {
	a, err := NewAllocator(Options{})
	require.NoError(t, err)
	var out []*Region
	for range 12 {
		out = append(out, alloc(t, a, 10))
	}
	err = a.Close()
	require.ErrorContains(t, err, "12 regions")
	require.ErrorContains(t, err, "and 2 more")
	require.ErrorContains(t, err, "Options.Debug")
	for _, r := range out {
		a.Put(r)
	}
	require.NoError(t, a.Close())
}

func TestClosedAllocator(t *testing.T) {
	a, err := NewAllocator(Options{Name: "gone"})
	require.NoError(t, err)
	a.Put(get(t, a, 10))
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	require.Zero(t, a.Stats().HeldBytes, "idle memory goes with it")
	for _, ask := range []func() error{
		func() error { _, err := a.Get(10); return err },
		func() error { _, err := a.Alloc(10); return err },
		func() error { _, err := a.AllocZeroed(10); return err },
		func() error { _, err := a.Empty(Float32, 1); return err },
	} {
		err := ask()
		require.ErrorIs(t, err, stepvan.ErrClosed)
		require.ErrorContains(t, err, `"gone"`)
	}
}
