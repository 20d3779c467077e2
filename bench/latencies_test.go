package bench

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestPercentiles(t *testing.T) {
	l := newLatencies()
	for us := 1; us <= 10000; us++ {
		l.add(time.Duration(us) * time.Microsecond)
	}
	for percent, want := range map[float64]float64{50: 5000, 90: 9000, 99: 9900, 99.9: 9990, 100: 10000} {
		require.InEpsilon(t, want, l.micros(percent), 0.001, "p%v", percent)
	}
}

func TestLatenciesOutsideTheRange(t *testing.T) {
	l := newLatencies()
	l.add(-time.Second)
	l.add(time.Hour)
	require.EqualValues(t, 2, l.count())
	require.InEpsilon(t, 6e8, l.micros(100), 0.001)
}

func TestLatenciesOfProcessesAdd(t *testing.T) {
	one, other := newLatencies(), newLatencies()
	one.add(time.Microsecond)
	other.add(3 * time.Microsecond)
	require.NoError(t, one.addCounts(other.counts()))
	require.EqualValues(t, 2, one.count())
	require.InEpsilon(t, 3, one.micros(100), 0.001)
}

// What a node sends gives the same percentiles as what it has recorded.
func TestCountsLoseNothing(t *testing.T) {
	l, copied := newLatencies(), newLatencies()
	for d := time.Nanosecond; d < 20*time.Minute; d += d/100 + 1 {
		l.add(d)
	}
	require.NoError(t, copied.addCounts(l.counts()))
	require.Equal(t, l.count(), copied.count())
	require.Equal(t, l.curve(nil), copied.curve(nil))
}

// A node in Python has no histogram.
func TestLatenciesFromCounts(t *testing.T) {
	l := newLatencies()
	require.NoError(t, l.addCounts(counts{1000: 3, 5000: 1, 0: 1, 1 << 62: 1}))
	require.EqualValues(t, 6, l.count())
	require.InEpsilon(t, 1, l.micros(50), 1e-3)
	require.InEpsilon(t, maxLatency/1000, l.micros(100), 1e-3)
	require.ErrorIs(t, l.addCounts(counts{1: -1}), stepvan.ErrInvalid)
}

func TestLatenciesAllocateNothing(t *testing.T) {
	l := newLatencies()
	require.Zero(t, testing.AllocsPerRun(100, func() { l.add(time.Millisecond) }))
}

// What takes long is not tried more often than needed.
func TestExchangesThatTakeLong(t *testing.T) {
	tries := 0
	n, err := calibrateCount(time.Second, 1, func(n int) (time.Duration, error) {
		tries++
		return time.Duration(n) * 2 * time.Second, nil
	})
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, []int{tries, n})
}

func TestQuartiles(t *testing.T) {
	require.Equal(t, Range{}, middleHalf(nil))
	require.Equal(t, Range{3, 3}, middleHalf([]float64{3}))
	require.Equal(t, Range{2, 4}, middleHalf([]float64{5, 1, 3, 2, 4}))
	require.Equal(t, "50%", Range{2, 4}.around(2))
	require.Empty(t, Range{}.around(0))
}

func TestACurveNeverFalls(t *testing.T) {
	l := newLatencies()
	for us := range 1000 {
		l.add(time.Duration(us+1) * time.Microsecond)
	}
	c := l.curve(func(us float64) float64 { return us + 1 })
	require.True(t, slices.IsSorted(c))
	require.InEpsilon(t, 1001, c[len(c)-1], 0.001)
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		require.InDelta(t, c.want, median(c.values), 1e-9)
	}
}

func TestExchangesThatFillATime(t *testing.T) {
	require.Equal(t, 500, scaled(100, 20*time.Millisecond, 100*time.Millisecond))
	require.Equal(t, 1, scaled(16, time.Minute, time.Millisecond), "one at least")
	require.Equal(t, maxCount, scaled(16, 0, time.Hour), "not for ever")
	var tried []int
	n, err := calibrateCount(time.Second, 4, func(n int) (time.Duration, error) {
		tried = append(tried, n)
		return time.Duration(n) * time.Millisecond, nil
	})
	require.NoError(t, err)
	require.Equal(t, []int{4, 25, 100}, tried)
	require.Equal(t, 1000, n)
}
