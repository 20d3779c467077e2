package compare

import (
	"fmt"
	"slices"

	"github.com/stepvan/stepvan/bench"
)

// metric is a figure of every round.
type metric struct {
	name   string
	rounds func(*bench.Report) []float64
	whole  func(*bench.Report) float64 // of a report without rounds
	format func(float64) string
}

var metrics = []metric{
	{"p50", func(r *bench.Report) []float64 { return r.Details.Samples.P50 }, func(r *bench.Report) float64 { return r.P50 }, bench.Micros},
	{"p99", func(r *bench.Report) []float64 { return r.Details.Samples.P99 }, func(r *bench.Report) float64 { return r.P99 }, bench.Micros},
	{"ratio to the limit", func(r *bench.Report) []float64 { return r.Details.Samples.Ratio }, func(r *bench.Report) float64 { return r.Ratio }, plain},
	{"exchanges/s", func(r *bench.Report) []float64 { return r.Details.Samples.Rate }, func(r *bench.Report) float64 { return r.Rate }, plain},
	{"processor time", func(r *bench.Report) []float64 { return r.Details.Samples.CPU }, func(r *bench.Report) float64 { return r.CPUPerOpUS }, bench.Micros},
	{"waiting", func(r *bench.Report) []float64 { return r.Details.Samples.WaitingCPU }, func(r *bench.Report) float64 { return r.Details.Waiting }, bench.CoreShare},
}

// of returns the figure of each report: the median of its rounds. Rounds do not form a sample,
// because they share the state of the machine.
func (m *metric) of(reports []*bench.Report) (runs []float64) {
	for _, r := range reports {
		switch rounds := m.rounds(r); {
		case len(rounds) > 0:
			runs = append(runs, middle(sample(rounds)))
		case m.whole(r) > 0:
			runs = append(runs, m.whole(r))
		}
	}
	return runs
}

// measured reports whether any report of the pairs has the figure.
func (m *metric) measured(all []*pair) bool {
	return slices.ContainsFunc(all, func(p *pair) bool { return len(m.of(p.before))+len(m.of(p.after)) > 0 })
}

func plain(v float64) string {
	if v >= 1e4 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}
