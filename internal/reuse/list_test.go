package reuse_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/reuse"
)

func TestListGivesWhatWasPutBack(t *testing.T) {
	var l reuse.List[int]
	a, b := l.Take(), l.Take()
	require.Zero(t, *a)
	*a = 7
	l.Put(b)
	l.Put(a)
	require.Same(t, a, l.Take(), "the latest is likeliest in the cache")
	require.Equal(t, 7, *a)
	require.Same(t, b, l.Take())
	require.Equal(t, 2, l.Made())
	require.NotSame(t, a, l.Take())
	require.Equal(t, 3, l.Made())
}

func TestListAllocatesNothing(t *testing.T) {
	var l reuse.List[int]
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Put(l.Take()) }))
}
