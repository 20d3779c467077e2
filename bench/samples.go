package bench

import "slices"

// round holds the figures of one round, in us. A limit of 0 was not measured.
type round struct {
	p50, p99 float64
	limit    float64 // median
	elapsed  float64 // per exchange of all workers: the inverse of the rate
	cpu      float64 // per exchange, of all processes
	waiting  float64 // share of a core that a process uses while it waits

	beside    bool      // a busy program has computed
	lost      float64   // the share of its rate that it has lost
	quota     bool      // the nodes had one
	throttled Throttled // of the control group with the quota
}

// Samples are the figures of each round, in order. Times are in us.
type Samples struct {
	P50   []float64 `json:"p50_us"`
	P99   []float64 `json:"p99_us"`
	Limit []float64 `json:"limit_p50_us,omitempty"`
	Ratio []float64 `json:"ratio,omitempty"`
	Rate  []float64 `json:"rate"`
	CPU   []float64 `json:"cpu_per_op_us,omitempty"`

	WaitingCPU []float64 `json:"waiting_cpu,omitempty"`

	Lost      []float64   `json:"lost,omitempty"`
	Throttled []Throttled `json:"throttled,omitempty"`
}

// Throttled says how a quota of processor time has stopped processes.
type Throttled struct {
	Count float64 `json:"count"` // periods per second whose quota was used up
	Time  float64 `json:"time"`  // that cores stood still, by the time on the clock; with many cores above 1
}

// medianThrottled has the medians of both figures.
func medianThrottled(rounds []Throttled) Throttled {
	var counts, times []float64
	for _, t := range rounds {
		counts, times = append(counts, t.Count), append(times, t.Time)
	}
	return Throttled{Count: rounded(median(counts), digits), Time: rounded(median(times), shareDigits)}
}

// add adds the figures of a round, so that all lists have the same rounds.
func (s *Samples) add(r round) {
	if r.beside {
		s.Lost = append(s.Lost, rounded(r.lost, shareDigits))
	}
	if r.quota {
		s.Throttled = append(s.Throttled, r.throttled)
	}
	s.P50, s.P99 = append(s.P50, rounded(r.p50, digits)), append(s.P99, rounded(r.p99, digits))
	s.Rate, s.CPU = append(s.Rate, rounded(1e6/r.elapsed, digits)), append(s.CPU, rounded(r.cpu, digits))
	if r.waiting > 0 {
		s.WaitingCPU = append(s.WaitingCPU, rounded(r.waiting, shareDigits))
	}
	if r.limit > 0 {
		s.Limit, s.Ratio = append(s.Limit, rounded(r.limit, digits)), append(s.Ratio, rounded(r.p50/r.limit, digits))
	}
}

// Range is the first and the third quartile of the rounds.
type Range [2]float64

// median of values; 0 without any.
func median(values []float64) float64 { return quantile(values, 0.5) }

// middleHalf returns the quartiles of values; zero without any.
func middleHalf(values []float64) Range {
	return Range{rounded(quantile(values, 0.25), digits), rounded(quantile(values, 0.75), digits)}
}

// quantile interpolates between the two nearest values; 0 without any.
func quantile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := p * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}
