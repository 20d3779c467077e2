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

// names lists the names of the reports, in order, each once.
func (s *Series) names() (out []string) {
	for _, r := range s.Reports {
		if n := r.Name(); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

func (s *Series) named(name string) (out []*bench.Report) {
	for _, r := range s.Reports {
		if r.Name() == name {
			out = append(out, r)
		}
	}
	return out
}

// Write writes a table for each metric, with a line for each measurement of either series.
func Write(w io.Writer, before, after Series) error {
	names := before.names()
	for _, n := range after.names() {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	for i := range metrics {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := metrics[i].write(w, names, before, after); err != nil {
			return err
		}
	}
	return writeNote(w, names, before, after)
}

// write writes the table of a metric. It leaves out measurements without that figure.
func (m *metric) write(w io.Writer, names []string, before, after Series) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s\t%s\t%s\tdelta\t\n", m.name, before.Name, after.Name)
	for _, name := range names {
		old, now := m.of(before.named(name)), m.of(after.named(name))
		if len(old)+len(now) > 0 {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", name, m.summary(old), m.summary(now), delta(old, now))
		}
	}
	return t.Flush()
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

// tooFew reports whether the runs are too few to tell a difference from noise.
func tooFew(old, now []float64) bool { return min(len(old), len(now)) < runsForDelta }

func middle(s *benchmath.Sample) float64 {
	return benchmath.AssumeNothing.Summary(s, confidence).Center
}

func sample(values []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
}

// writeNote says once how many runs a comparison needs, when there are too few.
func writeNote(w io.Writer, names []string, before, after Series) error {
	for _, name := range names {
		old, now := metrics[0].of(before.named(name)), metrics[0].of(after.named(name))
		if len(old) > 0 && len(now) > 0 && tooFew(old, now) {
			_, err := fmt.Fprintf(w, "\nnote: %d runs in each file, written with >>, can tell a difference from noise; %d have a confidence interval\n",
				runsForDelta, runsForInterval)
			return err
		}
	}
	return nil
}
