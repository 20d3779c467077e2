package bench

import (
	"fmt"
	"slices"

	"github.com/stepvan/stepvan/internal/errs"
)

// Goal is a figure that the project wants to keep, and how to measure it.
type Goal struct {
	Name    string
	Options Options   // to which PlanGoals adds what base holds
	Others  []Options // likewise: other measurements that the figure also needs
	Unit    string
	Bound   float64
	Least   bool // the figure must reach Bound; else it must not exceed it
	figure  figure
}

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

// PlanGoals lists each measurement of goals once. Those of one workload and van, with as many nodes
// and the same work, form a group. Others are not started meanwhile: many idle nodes would show in
// the tails. base holds the options that no goal sets: Node, Python, Env, Duration,
// Rounds, Signals, Stderr.
func PlanGoals(goals []Goal, base Options) (plan Plan) {
	groups := map[string]int{}
	for _, g := range goals {
		for _, o := range append([]Options{g.Options}, g.Others...) {
			o.Node, o.Python, o.Env, o.Console = base.Node, base.Python, base.Env, base.Console
			o.Duration, o.Rounds = base.Duration, base.Rounds
			alike := fmt.Sprint(o.Workload, o.Van, nodesText(&o), o.Work, o.Cores)
			if _, known := groups[alike]; !known {
				groups[alike], plan = len(plan), append(plan, nil)
			}
			group := &plan[groups[alike]]
			if !slices.ContainsFunc(*group, func(other Options) bool { return other.String() == o.String() }) {
				*group = append(*group, o)
			}
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
		all = append(all, g.result(byName))
	}
	return all
}

// result reads the figure from outcomes by name.
func (g *Goal) result(outcomes map[string]Outcome) GoalResult {
	v := GoalResult{Goal: *g}
	var reports []*Report
	for _, o := range append([]Options{g.Options}, g.Others...) {
		got, known := outcomes[o.String()]
		switch {
		case !known:
			v.Err = errs.Invalid("the plan lacks %v", &o)
		case got.Err != nil:
			v.Err = got.Err
		}
		if v.Err != nil {
			return v
		}
		reports = append(reports, got.Report)
	}
	v.Figure = rounded(g.figure(reports[0], reports[1:]...), 2)
	return v
}
