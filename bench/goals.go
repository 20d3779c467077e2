package bench

import (
	"slices"

	"github.com/stepvan/stepvan/internal/errs"
)

// Goal is a figure that the project wants to keep, and how to measure it.
type Goal struct {
	Name    string
	Options Options // to which PlanGoals adds what base holds
	Unit    string
	Bound   float64
	Least   bool // the figure must reach Bound; else it must not exceed it
	figure  func(*Report) float64
}

// Goals lists the goals of the project, except those of nodes in Python. Several goals may share
// one measurement.
func Goals() []Goal {
	var (
		ratio  = func(r *Report) float64 { return r.Ratio }
		p50    = func(r *Report) float64 { return r.P50 }
		p99    = func(r *Report) float64 { return r.P99 }
		share  = func(r *Report) float64 { return 1 / r.Ratio } // of the rate of the limit
		spread = func(r *Report) float64 { return r.P99 / r.P50 }
		millis = func(us func(*Report) float64) func(*Report) float64 {
			return func(r *Report) float64 { return us(r) / 1e3 }
		}
		longest = millis(func(r *Report) float64 { return r.Max })
	)
	echo := func(v Van) Options { return Options{Workload: Echo, Van: v} }
	afd := func(v Van) Options { return Options{Workload: AFD, Van: v} }
	inPlace, parked := afd(Shm), echo(TCP)
	inPlace.InPlace, parked.Progress = true, progressPark
	goals := []Goal{
		{Name: "shm, echo of 8 bytes: p50", Options: echo(Shm), Unit: "us", Bound: 1, figure: p50},
		{Name: "shm, echo of 8 bytes: p99", Options: echo(Shm), Unit: "us", Bound: 10, figure: p99},
		{Name: "shm, AFD exchange, one copy: p50 by copy and flag of two bare processes", Options: afd(Shm), Unit: "x", Bound: 1.25, figure: ratio},
		{Name: "shm, AFD exchange in place: p50", Options: inPlace, Unit: "us", Bound: 5, figure: p50},
		{Name: "TCP, echo of 8 bytes: p50 by bare socket", Options: echo(TCP), Unit: "x", Bound: 1.5, figure: ratio},
		{Name: "TCP, AFD exchange: p50 by bare socket", Options: afd(TCP), Unit: "x", Bound: 1.2, figure: ratio},
		{Name: "TCP, weights of 256 MiB: share of the bare rate", Options: Options{Workload: Weights, Van: TCP}, Bound: 0.9, Least: true, figure: share},
		{Name: "shm, weights of 256 MiB: share of the bare rate", Options: Options{Workload: Weights, Van: Shm}, Bound: 0.9, Least: true, figure: share},
		{Name: "TCP, park, echo of 8 bytes: p50 by Go netpoll", Options: parked, Unit: "x", Bound: 1.3, figure: ratio},
	}
	for _, v := range []Van{TCP, Shm} {
		o := Options{Workload: AFD, Van: v, Workers: 8, Servers: 4}
		goals = append(goals,
			Goal{Name: vanTitle(v) + ", AFD of 8 workers and 4 servers: p99 by p50", Options: o, Unit: "x", Bound: 10, figure: spread},
			Goal{Name: vanTitle(v) + ", AFD of 8 workers and 4 servers: longest", Options: o, Unit: "ms", Bound: 50, figure: longest})
	}
	for _, v := range []Van{TCP, Mem} {
		for _, workers := range []int{64, 256} {
			o := Options{Workload: Incast, Van: v, Workers: workers, Together: true}
			goals = append(goals, Goal{Name: vanTitle(v) + ", one process, " + o.nodes() + ": cost of a request by that of one worker", Options: o, Unit: "x", Bound: 2, figure: ratio})
		}
	}
	for _, v := range Vans {
		goals = append(goals, Goal{Name: vanTitle(v) + ", echo of 8 bytes: allocations per exchange", Options: echo(v), figure: allocations})
	}
	return append(goals, Goal{Name: "start, one exchange and stop: p50", Options: Options{Workload: Start, Van: TCP}, Unit: "ms", Bound: 300, figure: millis(p50)})
}

// PythonGoals lists the goals of nodes in Python.
func PythonGoals(nodes Nodes) []Goal {
	with := func(w Workload, v Van) Options { return Options{Workload: w, Van: v, Nodes: nodes} }
	over := func(r *Report) float64 { return r.Details.Over }
	name := string(nodes) + ": "
	return []Goal{
		{Name: name + "shm, echo of 8 bytes: p50 above that of Go", Options: with(Echo, Shm), Unit: "us", Bound: 2.5, figure: over},
		{Name: name + "TCP, echo of 8 bytes: p50", Options: with(Echo, TCP), Unit: "us", Bound: 12, figure: func(r *Report) float64 { return r.P50 }},
		{Name: name + "shm, AFD exchange: p50 by that of Go", Options: with(AFD, Shm), Unit: "x", Bound: 1.1, figure: func(r *Report) float64 { return r.Ratio }},
		{Name: name + "shm, get_batch and respond_vec of 8 workers: p50 above that of Go", Options: with(Batch, Shm), Unit: "us", Bound: 10, figure: over},
	}
}

// allocations of an exchange, rounded so that the few per second of heartbeats and timers do not
// count.
func allocations(r *Report) float64 { return rounded(r.Allocs, 0) }

// GoalResult is the measured figure of a goal, or the error that prevented it.
type GoalResult struct {
	Goal
	Figure float64
	Err    error // why it could not be measured
}

// Met reports whether the figure is good enough.
func (v *GoalResult) Met() bool {
	if v.Err != nil {
		return false
	}
	if v.Least {
		return v.Figure >= v.Bound
	}
	return v.Figure <= v.Bound
}

// PlanGoals lists each measurement of goals once. Those of one workload with the same nodes form a
// group. base holds the options that no goal sets: Node, Python, Env, Duration, Rounds, Signals, Stderr.
func PlanGoals(goals []Goal, base Options) (plan Plan) {
	groups := map[string]int{}
	for _, g := range goals {
		o := g.Options
		o.Node, o.Python, o.Env, o.Signals, o.Stderr = base.Node, base.Python, base.Env, base.Signals, base.Stderr
		o.Duration, o.Rounds = base.Duration, base.Rounds
		alike := string(o.Workload) + " " + o.nodes()
		if _, known := groups[alike]; !known {
			groups[alike], plan = len(plan), append(plan, nil)
		}
		group := &plan[groups[alike]]
		if !slices.ContainsFunc(*group, func(other Options) bool { return other.String() == o.String() }) {
			*group = append(*group, o)
		}
	}
	return plan
}

// Results reads the figure of each goal from the outcomes of a plan that has all its measurements.
func Results(goals []Goal, outcomes []Outcome) (all []GoalResult) {
	byName := map[string]Outcome{}
	for _, o := range outcomes {
		byName[o.Name] = o
	}
	for _, g := range goals {
		got, known := byName[g.Options.String()]
		v := GoalResult{Goal: g, Err: got.Err}
		switch {
		case !known:
			v.Err = errs.Invalid("the plan lacks %v", &g.Options)
		case got.Report != nil:
			v.Figure = rounded(g.figure(got.Report), 2)
		}
		all = append(all, v)
	}
	return all
}
