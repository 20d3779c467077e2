package bench

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Column is a column of the table of reports.
type Column struct {
	Name string
	Cell func(*Report) string
}

// Columns lists the columns of a table of reports.
func Columns(reports []*Report) []Column {
	all := slices.Clone(columns)
	for _, c := range further {
		if slices.ContainsFunc(reports, c.has) {
			all = append(all, Column{c.name, func(r *Report) string {
				if !c.has(r) {
					return "-"
				}
				return c.cell(r)
			}})
		}
	}
	return all
}

// columns are those that all reports have.
var columns = []Column{
	{"workload", func(r *Report) string { return string(r.Workload) }},
	{"van", func(r *Report) string { return string(r.Van) }},
	{"how", (*Report).How},
	{"p50", func(r *Report) string { return Micros(r.P50) }},
	{"+-", func(r *Report) string { return r.Details.P50Range.around(r.P50) }},
	{"p90", func(r *Report) string { return Micros(r.P90) }},
	{"p99", func(r *Report) string { return Micros(r.P99) }},
	{"p99.9", func(r *Report) string { return Micros(r.P999) }},
	{"max", func(r *Report) string { return Micros(r.Max) }},
	{"rate/s", func(r *Report) string { return fmt.Sprintf("%.0f", r.Rate) }},
	{"Gbit/s", func(r *Report) string { return fmt.Sprintf("%.3g", r.Gbps) }},
	{"limit", func(r *Report) string { return cmp.Or(r.Limit, "-") }},
	{"limit p50", func(r *Report) string { return orNone(r, Micros(r.LimitP50)) }},
	{"limit p99", func(r *Report) string { return orNone(r, Micros(r.LimitP99())) }},
	{"ratio", func(r *Report) string { return orNone(r, fmt.Sprintf("%.2f", r.Ratio)) }},
	{"+-", func(r *Report) string { return r.Details.Ratios.around(r.Ratio) }},
	{"allocs/op", func(r *Report) string { return fmt.Sprintf("%.3g", r.Allocs) }},
	{"cpu/op", func(r *Report) string { return Micros(r.CPUPerOpUS) }},
}

// further are the columns of some reports.
var further = []struct {
	name string
	has  func(*Report) bool
	cell func(*Report) string
}{
	{"waiting", hasWaiting, func(r *Report) string { return CoreShare(r.Details.Waiting) }},
	{"lost", hasBusy, func(r *Report) string { return fmt.Sprintf("%.3g%%", r.Details.Lost*100) }},
	{"throttled/s", hasQuota, func(r *Report) string { return fmt.Sprintf("%.3g", r.Details.Throttled.Count) }},
	{"GB/s", ofWorkload(Refit), func(r *Report) string { return fmt.Sprintf("%.3g", r.Gbps/8) }},
	{"beyond/process", ofWorkload(Refit), func(r *Report) string {
		return fmt.Sprintf("%.3gMiB", inMebibytes(r.Details.Beyond, r.Workers+r.Servers))
	}},
	{"beyond/pair", ofWorkload(Refit), func(r *Report) string { return fmt.Sprintf("%.3gMiB", inMebibytes(r.Details.Beyond, r.Details.Pairs)) }},
	{"messages/pair", ofWorkload(Refit), func(r *Report) string { return fmt.Sprintf("%.3g", r.Details.Messages) }},
	{"acks/pair", ofWorkload(Refit), func(r *Report) string { return fmt.Sprintf("%.3g", r.Details.Acks) }},
	{"allocs/process", ofWorkload(Refit), func(r *Report) string { return fmt.Sprintf("%.2g", r.Details.AllocsMost) }},
	{"above limit", ofWorkload(Bus), func(r *Report) string { return Micros(r.Details.Above) }},
	{"stopped", hasQuota, func(r *Report) string { return fmt.Sprintf("%.3g%%", r.Details.Throttled.Time*100) }},
}

func hasWaiting(r *Report) bool { return r.Details.Waiting > 0 }
func hasBusy(r *Report) bool    { return r.Variant.Busy }
func hasQuota(r *Report) bool   { return r.Variant.Quota > 0 }

// orNone returns "-" in place of a figure of the limit when there is no limit.
func orNone(r *Report, figure string) string {
	if r.Limit == "" {
		return "-"
	}
	return figure
}

// CoreShare writes a share of a core in percent, or "-" when it was not measured.
func CoreShare(share float64) string {
	if share == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3g%%", share*100)
}

// WriteTable writes reports as a table, with a legend.
func WriteTable(w io.Writer, reports ...*Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	shown := Columns(reports)
	writeRow := func(cell func(Column) string) {
		for _, c := range shown {
			fmt.Fprint(t, cell(c), "\t")
		}
		fmt.Fprintln(t)
	}
	writeRow(func(c Column) string { return c.Name })
	for _, r := range reports {
		writeRow(func(c Column) string { return c.Cell(r) })
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, strings.Join(legend(reports), "\n"))
	return err
}

// explained are the limits, workloads and nodes that the legend explains.
var explained = []struct {
	has  func(*Report) bool
	text string
}{
	{limitedBy(limitOneWorker), "one worker: what a request costs then, on the clock; ratio compares the costs, on the clock or in processor time, whichever grew more."},
	{limitedBy(limitStages), "ideal pipeline: a layer when the bare exchange and the computations overlap as far as they can."},
	{limitedBy(limitGo), "go nodes: the same between Go nodes, in turns with those in Python."},
	{
		func(r *Report) bool { return r.Variant.Nodes == NixlNodes && r.Workload == Refit },
		"nixl: the same rows by agents of NIXL in Python over UCX: each source writes into the memory of each of its destinations, and notifies it; all poll.",
	},
	{
		func(r *Report) bool { return r.Variant.Nodes == NixlNodes && r.Workload != Refit },
		"nixl: the same bytes by two agents of NIXL in Python over UCX, each way a write with a notification; both poll.",
	},
	{
		func(r *Report) bool { return r.Variant.Nodes == GlooNodes },
		"gloo: torch.distributed in Python as Megatron-core uses it: contiguous boxes, batch_isend_irecv, and a copy into the parameter; always over TCP.",
	},
	{
		func(r *Report) bool { return r.Variant.Think != "" },
		"think: how long the server computes before an answer. The times, and those of the limit, are without it.",
	},
	{
		func(r *Report) bool { return r.Variant.Fresh },
		"fresh: both sides write what they send and read what they get, within the time; so do those of the limit.",
	},
	{
		func(r *Report) bool { return r.Variant.Sleep != "" },
		"sleep: how long the server sleeps before an answer. The times are without it, but with its waking too late.",
	},
	{
		hasBusy,
		"busy cores: a program computes on every core. lost: the share of its rate that it loses beside the nodes. What their server computes does not count.",
	},
	{
		hasQuota,
		"quota: cores whose time all processes share. throttled/s: periods in which it was used up; stopped: time that cores then stood still, by the time on the clock.",
	},
	{
		hasWaiting,
		"waiting: processor time of a worker's process while the server computes, all threads, by the time on the clock; idle: of the node that uses most.",
	},
	{
		limitedBy(limitCopies),
		"bare copies: as many processes as destinations copy the same boxes out of mapped files, in lock-step; the sources sleep.",
	},
	{
		limitedBy(limitSockets),
		"bare sockets: the same pairs of processes write and read as many bytes, in lock-step.",
	},
	{
		ofWorkload(Refit),
		"refit: from the end of one run of the plan to that of the next, at the last destination. GB/s: bytes that reach destinations. beyond: memory of all processes beyond the models while they move, by processes, and by pairs of a source and a destination.",
	},
	{
		ofWorkload(Refit),
		"messages/pair: those of both ends in a run. acks/pair: acknowledgements besides, which no message carried. allocs/process: those of a run in the process that has most.",
	},
	{
		ofWorkload(Bus),
		"bus: a registered tensor moves once, timed at the receiver. The limit is a plan between the same agents that moves as many bytes. above limit: by how much p50 exceeds it, the median of the rounds. With apart the clients have processes of their own.",
	},
	{
		ofWorkload(Particles),
		"particles: a message goes to a particle, whose hook sends it back. The particle lives at the same peer, or apart at the other one.",
	},
	{
		ofWorkload(P2P),
		"p2p: a tensor goes to another peer by Send and Recv, and back.",
	},
	{
		ofWorkload(Put),
		"put: a Put with a note, and the answer of 8 bytes that the other peer's driver sends for it.",
	},
	{
		ofWorkload(Replay),
		"replay: collectors pick rows of the first size at random, and write them into a slot of the learner, which has the second size. The times of x2 say how long the learner waits for a batch that was prepared one tick ahead.",
	},
	{
		ofWorkload(Batch),
		"batch: processor time of the server's thread in GetBatch and RespondVec, for requests that are there; rate and cpu/op are of the whole.",
	},
}

func limitedBy(name string) func(*Report) bool {
	return func(r *Report) bool { return r.Limit == name }
}

func ofWorkload(w Workload) func(*Report) bool {
	return func(r *Report) bool { return r.Workload == w }
}

// legend explains the figures that need it.
func legend(reports []*Report) []string {
	lines := []string{"p50 and ratio are medians of rounds, +- is half the width of their middle half; the limit is of the same rounds, ratio is p50 by it."}
	for _, e := range explained {
		if slices.ContainsFunc(reports, e.has) {
			lines = append(lines, e.text)
		}
	}
	if over := overGo(reports); len(over) > 0 {
		lines = append(lines, "above go nodes: "+strings.Join(over, ", ")+".")
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
			out = append(out, fmt.Sprintf("%s %.2fµs", r.Name(), r.Details.Over))
		}
	}
	return out
}

// minCopyBytes is the least size at which the start of a copy does not dominate its time.
const minCopyBytes = 16 << 10

// copyRates lists the time and the rate of a copy of both directions' bytes, for each size.
func copyRates(reports []*Report) (out []string) {
	times := map[int64][]float64{}
	for _, r := range reports {
		bytes, us := r.PushBytes+r.PullBytes, r.Details.Memcpy
		if us > 0 && !r.Variant.InPlace && bytes >= minCopyBytes {
			times[bytes] = append(times[bytes], us)
		}
	}
	for _, bytes := range slices.Sorted(maps.Keys(times)) {
		us := median(times[bytes])
		out = append(out, fmt.Sprintf("%v %s (%.3g GB/s)", Size(bytes), Micros(us), float64(bytes)/us/1e3))
	}
	return out
}

// around is half the range, in percent of the value in its middle.
func (r Range) around(value float64) string {
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

// Micros writes a time in us with four digits and a unit that fits its size.
func Micros(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.4gs", us/1e6)
	case us >= 1e3:
		return fmt.Sprintf("%.4gms", us/1e3)
	}
	return fmt.Sprintf("%.4gµs", us)
}
