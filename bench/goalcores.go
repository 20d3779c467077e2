package bench

import (
	"fmt"
	"time"

	"github.com/stepvan/stepvan/bench/work"
)

// What servers do before they answer, while the nodes do not have the cores for themselves.
var (
	computes300 = work.Spec{Think: work.Constant(300 * time.Microsecond)}
	sleeps1     = work.Spec{Sleep: true, Think: work.Even(500*time.Microsecond, 1500*time.Microsecond)}
	sleeps10    = work.Spec{Sleep: true, Think: work.Even(5*time.Millisecond, 15*time.Millisecond)}
)

// lostOf is what a program on all cores loses, in percent of its rate.
func lostOf(r *Report, _ ...*Report) float64 { return r.Details.Lost * 100 }

// stoppedAbove is how much longer a quota stops nodes than those of the first other report, in percent of the time.
func stoppedAbove(r *Report, others ...*Report) float64 {
	return (r.Details.Throttled.Time - others[0].Details.Throttled.Time) * 100
}

// rateBy is the rate by that of the first other report.
func rateBy(r *Report, others ...*Report) float64 { return r.Rate / others[0].Rate }

// coresGoals are about cores that the nodes share with others, or of which they may use only a part.
func coresGoals() (goals []Goal) {
	for _, s := range []work.Spec{computes300, sleeps1, sleeps10} {
		o := Options{Workload: Echo, Van: Shm, Work: s, Cores: Cores{Busy: true}}
		goals = append(goals, Goal{
			Name:    "shm, server " + does(s) + ", a program on all cores: lost by it",
			Options: o, Others: waitingAs([]string{progressSpin, progressPark}, o), Unit: "%", Bound: 5, figure: lostOf,
		})
	}
	for _, c := range []struct {
		workload Workload
		cores    float64
		goal     Goal // the rest of its name, and its figure
	}{
		{Echo, 1, Goal{Name: "stopped by it, above park", Unit: "%", Bound: 10, figure: stoppedAbove}},
		{Echo, 1.5, Goal{Name: "stopped by it, above park", Unit: "%", Bound: 10, figure: stoppedAbove}},
		{Pairs, 1, Goal{Name: "rate by that of park", Bound: 0.95, Least: true, figure: rateBy}}, // the servers use up the quota
		{Pairs, 2, Goal{Name: "stopped by it, above park", Unit: "%", Bound: 10, figure: stoppedAbove}},
	} {
		g, o := c.goal, Options{Workload: c.workload, Van: Shm, Work: computes300, Cores: Cores{Quota: c.cores}}
		g.Name = fmt.Sprintf("shm, %s, server %s, quota of %g cores: %s", nodesText(&o), does(computes300), c.cores, g.Name)
		g.Options, g.Others = o, waitingAs([]string{progressPark}, o)
		goals = append(goals, g)
	}
	return goals
}

// does says what a server does before it answers.
func does(s work.Spec) string {
	if s.Sleep {
		return "sleeps " + s.Think.String()
	}
	return "computes " + s.Think.String()
}

// waitingAs is the same with nodes that wait in other ways.
func waitingAs(progresses []string, o Options) (all []Options) {
	for _, p := range progresses {
		o.Progress = p
		all = append(all, o)
	}
	return all
}
