package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stepvan/stepvan/internal/errs"
)

// Range and resolution of latencies: 1 ns to 10 min with three digits.
const (
	maxLatency    = int64(10 * time.Minute)
	latencyDigits = 3
)

// latencies collects how long exchanges took. Not for concurrent use. add allocates nothing.
type latencies struct{ h *hdrhistogram.Histogram }

func newLatencies() latencies {
	return latencies{hdrhistogram.New(1, maxLatency, latencyDigits)}
}

// add counts d. A time beyond the range counts as the end of the range.
func (l latencies) add(d time.Duration) {
	_ = l.h.RecordValue(min(max(int64(d), 1), maxLatency)) // in range
}

// counts holds the number of exchanges by their time in ns. Nodes send their latencies so.
type counts map[int64]int64

// counts costs milliseconds, which nodes that still measure would pay for, so the coordinator asks for
// it after the round.
func (l latencies) counts() counts {
	all := counts{}
	for _, b := range l.h.Distribution() {
		if b.Count > 0 {
			all[b.To] = b.Count
		}
	}
	return all
}

// addCounts adds the latencies of a node as add does. The error names an entry that is not a count.
func (l latencies) addCounts(c counts) error {
	for ns, n := range c {
		if n < 1 {
			return errs.Invalid("%d exchanges took %d ns", n, ns)
		}
		_ = l.h.RecordValues(min(max(ns, 1), maxLatency), n) // in range
	}
	return nil
}

func (l latencies) reset()       { l.h.Reset() }
func (l latencies) count() int64 { return l.h.TotalCount() }

// micros is a percentile in us: at most that many percent of all latencies are below it.
func (l latencies) micros(percent float64) float64 {
	if percent == 100 {
		return float64(l.h.Max()) / 1e3
	}
	return float64(l.h.ValueAtQuantile(percent)) / 1e3
}

// Curve is a distribution. Latency[i] is the time in us within which Percent[i] of all exchanges
// ended.
type Curve struct {
	Percent []float64 `json:"percent"`
	Latency []float64 `json:"us"`
	Limit   []float64 `json:"limit_us,omitempty"`

	Count      int64 `json:"count"` // exchanges; a level beyond the last one shows the maximum
	LimitCount int64 `json:"limit_count,omitempty"`
}

// levels of a curve. They are closer together where exchanges are rarer.
var levels = []float64{0, 10, 25, 50, 75, 90, 95, 97.5, 99, 99.5, 99.75, 99.9, 99.95, 99.975, 99.99, 99.995, 99.999, 100}

// curve reads the latencies at all levels. It applies change to each, unless change is nil; change
// must keep their order.
func (l latencies) curve(change func(us float64) float64) []float64 {
	out := make([]float64, len(levels))
	for i, percent := range levels {
		us := l.micros(percent)
		if change != nil {
			us = change(us)
		}
		out[i] = rounded(us, digits)
	}
	return out
}
