package bench

import (
	"time"

	"github.com/stepvan/stepvan/bench/work"
)

// figure reads the figure of a goal from its report, and from those of Goal.Others.
type figure func(own *Report, others ...*Report) float64

// The figures of one report.
func ratioOf(r *Report, _ ...*Report) float64   { return r.Ratio }
func p50Of(r *Report, _ ...*Report) float64     { return r.P50 }
func p99Of(r *Report, _ ...*Report) float64     { return r.P99 }
func shareOf(r *Report, _ ...*Report) float64   { return 1 / r.Ratio } // of the rate of the limit
func spreadOf(r *Report, _ ...*Report) float64  { return r.P99 / r.P50 }
func longestOf(r *Report, _ ...*Report) float64 { return r.Max / 1e3 }
func millisOf(r *Report, _ ...*Report) float64  { return r.P50 / 1e3 }
func overGoOf(r *Report, _ ...*Report) float64  { return r.Details.Over }
func waitingOf(r *Report, _ ...*Report) float64 { return r.Details.Waiting * 100 }

// allocationsOf is per exchange, rounded so that the few per second of heartbeats and timers do not
// count.
func allocationsOf(r *Report, _ ...*Report) float64 { return rounded(r.Allocs, 0) }

// byAllowed is the p50 by what bare sockets allow: factor times their p50, or more us above it.
func byAllowed(factor, more float64) figure {
	return func(r *Report, _ ...*Report) float64 { return r.P50 / max(factor*r.LimitP50, r.LimitP50+more) }
}

// byLargest is a figure by the largest of the same figures of the other reports.
func byLargest(of figure) figure {
	return func(own *Report, others ...*Report) float64 {
		largest := 0.0
		for _, r := range others {
			largest = max(largest, of(r))
		}
		return of(own) / largest
	}
}

// Goals lists the goals of the project, except those of nodes in Python. Several goals may share
// one measurement.
func Goals() []Goal {
	echo := func(v Van) Options { return Options{Workload: Echo, Van: v} }
	inPlace, parked := oneLayer(Shm), echo(TCP)
	inPlace.InPlace, parked.Progress = true, progressPark
	goals := []Goal{
		{Name: "shm, echo of 8 bytes: p50", Options: echo(Shm), Unit: "us", Bound: 1.2, figure: p50Of},
		{Name: "shm, echo of 8 bytes: p99", Options: echo(Shm), Unit: "us", Bound: 6, figure: p99Of},
		{Name: "shm, AFD exchange, one copy: p50 by copy and flag of two bare processes", Options: oneLayer(Shm), Unit: "x", Bound: 1.25, figure: ratioOf},
		{Name: "shm, AFD exchange, one copy, fresh: p50 by copy and flag of two bare processes", Options: freshLayer(Shm), Unit: "x", Bound: 1.25, figure: ratioOf},
		{Name: "shm, AFD exchange in place: p50", Options: inPlace, Unit: "us", Bound: 5, figure: p50Of},
		{Name: "TCP, echo of 8 bytes: p50 by bare socket", Options: echo(TCP), Unit: "x", Bound: 1.5, figure: ratioOf},
		{Name: "TCP, AFD exchange: p50 by bare socket", Options: oneLayer(TCP), Unit: "x", Bound: 1.2, figure: ratioOf},
		{Name: "TCP, weights of 256 MiB: share of the bare rate", Options: Options{Workload: Weights, Van: TCP}, Bound: 0.9, Least: true, figure: shareOf},
		{Name: "shm, weights of 256 MiB: share of the bare rate", Options: Options{Workload: Weights, Van: Shm}, Bound: 0.9, Least: true, figure: shareOf},
		{Name: "TCP, park, echo of 8 bytes: p50 by Go netpoll", Options: parked, Unit: "x", Bound: 1.3, figure: ratioOf},
		{Name: "shm, AFD pipeline of three micro-batches: p50 by ideal pipeline", Options: Options{Workload: AFD3, Van: Shm}, Unit: "x", Bound: 1.08, figure: ratioOf},
		{Name: "TCP, AFD pipeline of three micro-batches: p50 by ideal pipeline", Options: Options{Workload: AFD3, Van: TCP}, Unit: "x", Bound: 1.25, figure: ratioOf},
		{Name: "shm, 8 bytes to 4 servers: p50", Options: Options{Workload: Fanout, Van: Shm}, Unit: "us", Bound: 60, figure: p50Of},
		{Name: "TCP, 8 bytes to 4 servers: p50 by bare sockets", Options: Options{Workload: Fanout, Van: TCP}, Unit: "x", Bound: 3, figure: ratioOf},
	}
	goals = append(goals, waitingGoals()...)
	goals = append(goals, coresGoals()...)
	goals = append(goals, peersGoals()...)
	for _, v := range []Van{TCP, Shm} {
		o := Options{Workload: AFD, Van: v, Workers: 8, Servers: 4}
		goals = append(goals,
			Goal{Name: vanTitle(v) + ", AFD of 8 workers and 4 servers: p99 by p50", Options: o, Unit: "x", Bound: 10, figure: spreadOf},
			Goal{Name: vanTitle(v) + ", AFD of 8 workers and 4 servers: longest", Options: o, Unit: "ms", Bound: 50, figure: longestOf})
	}
	for _, v := range []Van{TCP, Mem} {
		for _, workers := range []int{64, 256} {
			o := Options{Workload: Incast, Van: v, Workers: workers, Processes: Processes{Together: true}}
			goals = append(goals, Goal{Name: vanTitle(v) + ", one process, " + nodesText(&o) + ": cost of a request by that of one worker", Options: o, Unit: "x", Bound: 2, figure: ratioOf})
		}
	}
	for _, v := range Vans {
		goals = append(goals, Goal{Name: vanTitle(v) + ", echo of 8 bytes: allocations per exchange", Options: echo(v), figure: allocationsOf})
	}
	return append(goals, Goal{Name: "start, one exchange and stop: p50", Options: Options{Workload: Start, Van: TCP}, Unit: "ms", Bound: 300, figure: millisOf})
}

// oneLayer is the exchange of the activations of a layer.
func oneLayer(v Van) Options { return Options{Workload: AFD, Van: v} }

// freshLayer is the same between programs that write and read the activations.
func freshLayer(v Van) Options {
	return Options{Workload: AFD, Van: v, Work: work.Spec{Fresh: true}}
}

// echoComputing is an echo whose server computes.
func echoComputing(v Van, times work.Times) Options {
	return Options{Workload: Echo, Van: v, Work: work.Spec{Think: times}}
}

// Times that the servers of goals compute.
// A node that has learned one constant does not know the range or the mixture.
var (
	constants = []work.Times{work.Constant(100 * time.Microsecond), work.Constant(300 * time.Microsecond), work.Constant(time.Millisecond)}
	variable  = []work.Times{
		work.Even(100*time.Microsecond, time.Millisecond),
		{{Share: 0.9, Least: 100 * time.Microsecond, Most: 100 * time.Microsecond}, {Share: 0.1, Least: 5 * time.Millisecond, Most: 5 * time.Millisecond}},
	}
	longWaits = []work.Times{work.Constant(10 * time.Millisecond), work.Even(5*time.Millisecond, 15*time.Millisecond)}
)

func computes(v Van, times work.Times) string {
	return vanTitle(v) + ", server computes " + times.String()
}

// waitingGoals are about what waiting for a server that computes costs.
func waitingGoals() (goals []Goal) {
	var all []Options
	for i, times := range constants {
		o, name := echoComputing(Shm, times), computes(Shm, times)
		all = append(all, o)
		goals = append(goals,
			Goal{Name: name + ": p50 above it", Options: o, Unit: "us", Bound: []float64{3, 4, 6}[i], figure: p50Of},
			Goal{Name: name + ": p99 above it", Options: o, Unit: "us", Bound: 30, figure: p99Of})
	}
	for _, times := range variable {
		o, name := echoComputing(Shm, times), computes(Shm, times)
		goals = append(goals,
			Goal{Name: name + ": p50 by the largest of the constant ones", Options: o, Others: all, Unit: "x", Bound: 2, figure: byLargest(p50Of)},
			Goal{Name: name + ": p99 by the largest of the constant ones", Options: o, Others: all, Unit: "x", Bound: 3, figure: byLargest(p99Of)})
	}
	for _, times := range constants {
		goals = append(goals, Goal{
			Name:    computes(TCP, times) + ": p50 by 1.3 x or 5 us more than bare socket",
			Options: echoComputing(TCP, times), Unit: "x", Bound: 1, figure: byAllowed(1.3, 5),
		})
	}
	for _, times := range longWaits {
		goals = append(goals, Goal{Name: computes(Shm, times) + ": processor time of the waiter", Options: echoComputing(Shm, times), Unit: "%", Bound: 5, figure: waitingOf})
	}
	last := constants[len(constants)-1]
	return append(goals,
		Goal{Name: computes(Shm, last) + ": processor time of the waiter", Options: echoComputing(Shm, last), Unit: "%", Bound: 50, figure: waitingOf},
		Goal{Name: "shm, idle nodes: processor time", Options: Options{Workload: Idle, Van: Shm}, Unit: "%", Bound: 1, figure: waitingOf})
}

// PythonGoals lists the goals of nodes in Python.
func PythonGoals(nodes Nodes) []Goal {
	with := func(w Workload, v Van) Options { return Options{Workload: w, Van: v, Nodes: nodes} }
	name := string(nodes) + ": "
	return []Goal{
		{Name: name + "shm, echo of 8 bytes: p50 above that of Go", Options: with(Echo, Shm), Unit: "us", Bound: 2, figure: overGoOf},
		{Name: name + "TCP, echo of 8 bytes: p50", Options: with(Echo, TCP), Unit: "us", Bound: 12, figure: p50Of},
		{Name: name + "shm, AFD exchange: p50 by that of Go", Options: with(AFD, Shm), Unit: "x", Bound: 1.1, figure: ratioOf},
		{Name: name + "shm, get_batch and respond_vec of 8 workers: p50 above that of Go", Options: with(Batch, Shm), Unit: "us", Bound: 10, figure: overGoOf},
		{Name: name + "shm, idle nodes: processor time", Options: with(Idle, Shm), Unit: "%", Bound: 1, figure: waitingOf},
	}
}

// PeerGoals lists the goals of nodes that are compared with those of a peer. Exchanges with NIXL go over shared memory.
// Only nodes in Go are compared when a peer reshards.
func PeerGoals(nodes, peer Nodes) (goals []Goal) {
	if nodes == GoNodes {
		goals = reshardingGoals(peer)
	}
	if peer == GlooNodes {
		return goals
	}
	add := func(name string, o Options, of figure) {
		other := o
		o.Nodes, other.Nodes = nodes, peer
		goals = append(goals, Goal{Name: string(nodes) + ": " + name + " by that of " + string(peer), Options: o, Others: []Options{other}, Unit: "x", Bound: 1, figure: byLargest(of)})
	}
	if nodes.Python() {
		for _, times := range constants {
			add(computes(Shm, times)+": p50 above it", echoComputing(Shm, times), p50Of)
			add(computes(Shm, times)+": p99 above it", echoComputing(Shm, times), p99Of)
		}
	}
	add("shm, AFD exchange, one copy: p50", oneLayer(Shm), p50Of)
	add("shm, AFD exchange, one copy, fresh: p50", freshLayer(Shm), p50Of)
	return goals
}
