package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

var columns = []string{
	"workload", "van", "nodes", "push", "pull", "in flight", "p50", "p90", "p99", "p99.9", "max",
	"rate/s", "Gbit/s", "limit p50", "ratio", "allocs/op", "cpu/op",
}

// WriteTable writes reports for people.
func WriteTable(w io.Writer, reports ...*Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, strings.Join(columns, "\t")+"\t")
	for _, r := range reports {
		fmt.Fprintf(t, "%s\t%s\t%dw%ds\t%v\t%v\t%d\t%s\t%s\t%s\t%s\t%s\t%.0f\t%.3g\t%s\t%.2f\t%.3g\t%s\t\n",
			r.Workload, r.Van, r.Workers, r.Servers, Size(r.PushBytes), Size(r.PullBytes), r.Inflight,
			micros(r.P50), micros(r.P90), micros(r.P99), micros(r.P999), micros(r.Max),
			r.Rate, r.Gbps, micros(r.LimitP50), r.Ratio, r.Allocs, micros(r.CPUPerOpUS))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i, r := range reports {
		if i == 0 || reports[i-1].Limit != r.Limit {
			fmt.Fprintf(w, "limit: %s, one worker and one server, one exchange at a time; ratio: p50 by it, median of the rounds\n", r.Limit)
		}
	}
	return nil
}

// WriteGoals writes verdicts for people.
func WriteGoals(w io.Writer, verdicts []Verdict) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "goal\tat most\tmeasured\t")
	for i := range verdicts {
		v := &verdicts[i]
		word := "missed"
		if v.Met() {
			word = "met"
		}
		fmt.Fprintf(t, "%s\t%.4g %s\t%.4g %s\t%s\n", v.Name, v.Most, v.Unit, v.Figure, v.Unit, word)
	}
	return t.Flush()
}
