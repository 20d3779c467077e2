package bench

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
