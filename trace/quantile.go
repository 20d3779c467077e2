package trace

import (
	"math"
	"slices"
	"time"
)

// Quantiles are the median, the 99th percentile and the maximum of durations. Each is a duration that was measured.
type Quantiles struct{ P50, P99, Max time.Duration }

// quantiles sorts d. The p-quantile is the smallest value that at least the
// share p of all values does not exceed.
func quantiles(d []time.Duration) Quantiles {
	if len(d) == 0 {
		return Quantiles{}
	}
	slices.Sort(d)
	rank := func(p float64) time.Duration { return d[int(math.Ceil(p*float64(len(d))))-1] }
	return Quantiles{P50: rank(0.50), P99: rank(0.99), Max: d[len(d)-1]}
}
