package page

import (
	"fmt"
	"strings"
	"time"

	"github.com/stepvan/stepvan/bench"
)

// goalRow is a line of the table of goals.
type goalRow struct {
	Name, Wanted, Measured, Status, Class string
}

func newGoalRow(v *bench.GoalResult) goalRow {
	class := "missed"
	switch {
	case v.Err != nil:
		class = "unknown"
	case v.Met():
		class = "met"
	}
	return goalRow{v.Name, signs.Replace(v.Wanted()), signs.Replace(v.Measured()), v.Status(), class}
}

// signs replaces texts by signs that a terminal may not have.
var signs = strings.NewReplacer("<=", "≤", ">=", "≥", " x", " ×", " us", " µs")

// row is a line of the table of all measurements.
type row struct {
	Workload, Van, How          string
	P50, Spread, P90, P99, P999 string
	Max, Rate, Gbps             string
	Limit, LimitP50, Ratio      string
	Allocs, CPU                 string
}

func newRow(r *bench.Report) row {
	out := row{
		Workload: string(r.Workload), Van: string(r.Van), How: r.How(),
		P50: duration(r.P50), Spread: r.P50Range.Around(r.P50), P90: duration(r.P90), P99: duration(r.P99), P999: duration(r.P999),
		Max: duration(r.Max), Rate: fmt.Sprintf("%.0f", r.Rate), Gbps: fmt.Sprintf("%.3g", r.Gbps),
		Limit: r.Limit, LimitP50: duration(r.LimitP50), Ratio: fmt.Sprintf("%.2f", r.Ratio),
		Allocs: fmt.Sprintf("%.2g", r.Allocs), CPU: duration(r.CPUPerOpUS),
	}
	if r.Limit == "" {
		out.Limit, out.LimitP50, out.Ratio = "-", "-", "-"
	}
	return out
}

// duration writes us with three digits.
func duration(us float64) string {
	d := time.Duration(us * 1e3)
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", us/1e3)
	}
	return fmt.Sprintf("%.3g µs", us)
}
