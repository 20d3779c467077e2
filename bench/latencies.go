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

// add counts d; what is longer than the range counts as its end.
func (l latencies) add(d time.Duration) {
	_ = l.h.RecordValue(min(max(int64(d), 1), maxLatency)) // in range
}

// counts tells how many exchanges took so many ns: latencies of a node that has no histograms.
type counts map[int64]int64

// addCounts adds those of counts, as add does. The error is about what is no count.
func (l latencies) addCounts(c counts) error {
	for ns, n := range c {
		if n < 1 {
			return errs.Invalid("%d exchanges took %d ns", n, ns)
		}
		_ = l.h.RecordValues(min(max(ns, 1), maxLatency), n) // in range
	}
	return nil
}

// report tells how long each exchange of the last round took. To encode that costs milliseconds, which others
// that still measure would have to bear, so it is asked for after the round.
func (l latencies) report() (r *reply, err error) {
	r = &reply{}
	r.Latencies, err = l.encode()
	return r, err
}

func (l latencies) reset()       { l.h.Reset() }
func (l latencies) count() int64 { return l.h.TotalCount() }

// micros is the percentile in us: of so many percent of all latencies none is greater.
func (l latencies) micros(percent float64) float64 {
	if percent == 100 {
		return float64(l.h.Max()) / 1e3
	}
	return float64(l.h.ValueAtQuantile(percent)) / 1e3
}

// merge adds what another process has collected and encoded.
func (l latencies) merge(encoded []byte) error {
	if len(encoded) == 0 {
		return nil
	}
	other, err := hdrhistogram.Decode(encoded)
	if err == nil {
		l.h.Merge(other)
	}
	return err
}

func (l latencies) encode() ([]byte, error) {
	return l.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
}

// Curve is a distribution: of so many percent of all exchanges none took longer, in us.
type Curve struct {
	Percent []float64 `json:"percent"`
	Latency []float64 `json:"us"`
	Limit   []float64 `json:"limit_us,omitempty"`

	Count      int64 `json:"count"` // exchanges: a level that less than one is beyond is their maximum
	LimitCount int64 `json:"limit_count,omitempty"`
}

// levels of a curve: closer together the rarer.
var levels = []float64{0, 10, 25, 50, 75, 90, 95, 97.5, 99, 99.5, 99.75, 99.9, 99.95, 99.975, 99.99, 99.995, 99.999, 100}

// curve reads the levels, each changed by a function that keeps their order; nil changes nothing.
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
