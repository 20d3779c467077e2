package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

var columns = []string{
	"workload", "van", "how", "p50", "+-", "p90", "p99", "p99.9", "max",
	"rate/s", "Gbit/s", "limit", "limit p50", "ratio", "+-", "allocs/op", "cpu/op",
}

// WriteTable writes reports as a table, with a legend.
func WriteTable(w io.Writer, reports ...*Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, strings.Join(columns, "\t")+"\t")
	for _, r := range reports {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f\t%.3g\t%s\t%s\t%s\t%s\t%.3g\t%s\t\n",
			r.Workload, r.Van, r.How(), micros(r.P50), r.P50Range.Around(r.P50), micros(r.P90), micros(r.P99), micros(r.P999), micros(r.Max),
			r.Rate, r.Gbps, orNone(r, r.Limit), orNone(r, micros(r.LimitP50)), orNone(r, fmt.Sprintf("%.2f", r.Ratio)), r.Ratios.Around(r.Ratio), r.Allocs, micros(r.CPUPerOpUS))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, line := range legend(reports) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// orNone returns "-" in place of a figure of the limit when there is no limit.
func orNone(r *Report, figure string) string {
	if r.Limit == "" {
		return "-"
	}
	return figure
}

// legend explains the figures that need it.
func legend(reports []*Report) []string {
	has := func(name string) bool {
		return slices.ContainsFunc(reports, func(r *Report) bool { return r.Limit == name })
	}
	lines := []string{"p50 and ratio are medians of rounds, +- is half the width of their middle half; the limit is of the same rounds, ratio is p50 by it."}
	if has(limitOneWorker) {
		lines = append(lines, "one worker: what a request costs then, on the clock; ratio compares the costs, on the clock or in processor time, whichever grew more.")
	}
	if has(limitStages) {
		lines = append(lines, "ideal pipeline: a layer when the bare exchange and the computations overlap as far as they can.")
	}
	if has(limitGo) {
		lines = append(lines, "go nodes: the same between Go nodes, in turns with those in Python. Above it: "+strings.Join(overGo(reports), ", ")+".")
	}
	if slices.ContainsFunc(reports, func(r *Report) bool { return r.Nodes == NixlNodes }) {
		lines = append(lines, "nixl: the same bytes by two agents of NIXL in Python over UCX, each way a write with a notification; both poll.")
	}
	if slices.ContainsFunc(reports, func(r *Report) bool { return r.Workload == Batch }) {
		lines = append(lines, "batch: processor time of the server's thread in GetBatch and RespondVec, for requests that are there; rate and cpu/op are of the whole.")
	}
	if copies := copyRates(reports); len(copies) > 0 {
		lines = append(lines, "memcpy in one thread: "+strings.Join(copies, ", ")+".")
	}
	return lines
}

// overGo lists, for each report of nodes in Python, by how much its p50 exceeds that of Go nodes.
func overGo(reports []*Report) (out []string) {
	for _, r := range reports {
		if r.Limit == limitGo {
			out = append(out, fmt.Sprintf("%s %.2fµs", r.Name(), r.Over))
		}
	}
	return out
}

// copyRates lists the time and the rate of a copy of both directions' bytes, for each size.
func copyRates(reports []*Report) (out []string) {
	times := map[int64][]float64{}
	for _, r := range reports {
		if r.Memcpy > 0 && !r.InPlace && bytesOf(r) >= minCopyBytes {
			times[bytesOf(r)] = append(times[bytesOf(r)], r.Memcpy)
		}
	}
	for _, bytes := range slices.Sorted(maps.Keys(times)) {
		us := median(times[bytes])
		out = append(out, fmt.Sprintf("%v %s (%.3g GB/s)", Size(bytes), micros(us), float64(bytes)/us/1e3))
	}
	return out
}

// minCopyBytes is the least size at which the start of a copy does not dominate its time.
const minCopyBytes = 16 << 10

// bytesOf is the number of bytes of an exchange with one server.
func bytesOf(r *Report) int64 { return r.PushBytes + r.PullBytes }

// Around is half the range, in percent of the value in its middle.
func (r Range) Around(value float64) string {
	if value == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f%%", (r[1]-r[0])/2/value*100)
}

// WriteGoals writes the results of goals as a table.
func WriteGoals(w io.Writer, goalResults []GoalResult) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "goal\twanted\tmeasured\t")
	for i := range goalResults {
		v := &goalResults[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", v.Name, v.Wanted(), v.Measured(), v.Status())
	}
	return t.Flush()
}

// Wanted is the bound with its unit.
func (v *GoalResult) Wanted() string {
	sign := "<="
	if v.Least {
		sign = ">="
	}
	return strings.TrimSpace(fmt.Sprintf("%s %.4g %s", sign, v.Bound, v.Unit))
}

// Measured is the figure with its unit, or "-" when Status says why the figure is missing.
func (v *GoalResult) Measured() string {
	if v.Err != nil {
		return "-"
	}
	return strings.TrimSpace(fmt.Sprintf("%.4g %s", v.Figure, v.Unit))
}

// Status is "met", "missed", or why the goal was not measured.
func (v *GoalResult) Status() string {
	switch {
	case v.Err != nil:
		return "not measured: " + Reason(v.Err)
	case v.Met():
		return "met"
	}
	return "missed"
}

// micros writes a time in us with a unit that fits its size.
func micros(us float64) string {
	d := time.Duration(us * 1e3)
	switch {
	case d >= time.Second:
		return d.Round(time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(10 * time.Nanosecond).String()
}
