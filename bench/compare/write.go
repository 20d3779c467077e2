package compare

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"golang.org/x/perf/benchmath"

	"github.com/stepvan/stepvan/bench"
)

// Series is one side of a comparison: reports and their name.
type Series struct {
	Name    string
	Reports []*bench.Report
}

// pair has the reports of one measurement from both sides.
type pair struct {
	name          string
	before, after []*bench.Report
}

// pairs groups the reports by measurement, in order of appearance.
func pairs(before, after Series) (out []*pair) {
	byName := map[string]*pair{}
	of := func(r *bench.Report) *pair {
		p := byName[r.Name()]
		if p == nil {
			p = &pair{name: r.Name()}
			byName[p.name], out = p, append(out, p)
		}
		return p
	}
	for _, r := range before.Reports {
		p := of(r)
		p.before = append(p.before, r)
	}
	for _, r := range after.Reports {
		p := of(r)
		p.after = append(p.after, r)
	}
	return out
}

// Write writes a table for each metric that was measured, with a line for each measurement of either series. A note
// says once how many runs a comparison needs, when there are too few.
func Write(w io.Writer, before, after Series) error {
	all, few := pairs(before, after), false
	for i := range metrics {
		m := &metrics[i]
		if i > 0 && !m.measured(all) {
			continue
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "%s\t%s\t%s\tdelta\t\n", m.name, before.Name, after.Name)
		for _, p := range all {
			old, now := m.of(p.before), m.of(p.after)
			if len(old)+len(now) > 0 {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", p.name, m.summary(old), m.summary(now), delta(old, now))
			}
			few = few || tooFew(old, now)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if !few {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nnote: %d runs in each file, written with >>, can tell a difference from noise; %d have a confidence interval\n",
		runsForDelta, runsForInterval)
	return err
}

const confidence = 0.95

// The number of runs that each series needs. With 3 runs the p of the U test is at least
// 2/(6 over 3) = 0.1, with 4 runs 2/(8 over 4) = 0.03. A median of 6 has a confidence interval.
const (
	runsForDelta    = 4
	runsForInterval = 6
)

// summary is the median of the runs, and its distance to the confidence interval.
func (m *metric) summary(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	s := benchmath.AssumeNothing.Summary(sample(values), confidence)
	return m.format(s.Center) + " ± " + s.PctRangeString()
}

// delta is the difference with its p and the number of runs, or ~ when it is not significant. With
// too few runs it is the difference and a ~.
func delta(old, now []float64) string {
	if len(old) == 0 || len(now) == 0 {
		return ""
	}
	a, b := sample(old), sample(now)
	if tooFew(old, now) {
		certain := benchmath.Comparison{}
		return fmt.Sprintf("%s ~ (needs %d runs)", certain.FormatDelta(middle(a), middle(b)), runsForDelta)
	}
	c := benchmath.AssumeNothing.Compare(a, b)
	return c.FormatDelta(middle(a), middle(b)) + " (" + c.String() + ")"
}

// tooFew reports whether there are runs of both, and too few to tell a difference from noise.
func tooFew(old, now []float64) bool {
	n := min(len(old), len(now))
	return 0 < n && n < runsForDelta
}

func middle(s *benchmath.Sample) float64 {
	return benchmath.AssumeNothing.Summary(s, confidence).Center
}

func sample(values []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
}
