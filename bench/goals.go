package bench

import (
	"context"
	"fmt"
	"time"
)

// Goal is a figure that the project wants to keep, and how to measure it.
type Goal struct {
	Name    string
	Options Options // to which Run's caller adds its own Node, Van of the processes, and so on
	Unit    string
	Most    float64
	of      func(*Report) float64
}

// Goals are those of the project, for 1 worker and 1 server as processes over TCP.
func Goals() []Goal {
	ratio := func(r *Report) float64 { return r.Ratio }
	allocs := func(r *Report) float64 { return rounded(r.Allocs, 0) } // heartbeats allocate a little
	echo, afd := Options{Workload: Echo}, Options{Workload: AFD}
	return []Goal{
		{"echo of 8 bytes, p50 by raw socket ping-pong", echo, "x", 2.5, ratio},
		{"echo of 8 bytes, allocations per exchange", echo, "", 0, allocs},
		{"AFD exchange, p50 by raw socket ping-pong", afd, "x", 1.5, ratio},
		{"AFD exchange, allocations per exchange", afd, "", 0, allocs},
		{"start, one exchange and stop, p50", Options{Workload: Start}, "ms", 300, func(r *Report) float64 { return r.P50 / 1e3 }},
	}
}

// Verdict is what came of a goal.
type Verdict struct {
	Goal
	Figure float64
	Report *Report // may be that of several goals
}

// Met tells whether the figure is good enough.
func (v *Verdict) Met() bool { return v.Figure <= v.Most }

// RunGoals measures all goals. base holds what does not belong to a goal: Node, Env,
// Duration, Signals, Stderr, Pin, Progress. What several goals want is measured once.
// done is called with each report when it is there; it may be nil.
func RunGoals(ctx context.Context, base Options, done func(*Report)) ([]Verdict, error) {
	var verdicts []Verdict
	reports := map[Workload]*Report{}
	for _, g := range Goals() {
		o := base
		o.Workload, o.Van = g.Options.Workload, TCP
		if reports[o.Workload] == nil {
			r, err := Run(ctx, o)
			if err != nil {
				return verdicts, fmt.Errorf("%s: %w", o.Workload, err)
			}
			reports[o.Workload] = r
			if done != nil {
				done(r)
			}
		}
		r := reports[o.Workload]
		verdicts = append(verdicts, Verdict{Goal: g, Figure: rounded(g.of(r), 2), Report: r})
	}
	return verdicts, nil
}

// micros writes a time in us with the unit that reads best.
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
