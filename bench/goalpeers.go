package bench

import "github.com/stepvan/stepvan/bench/refit"

// beyondProcess and beyondPair are the memory beyond the models, in MiB.
var (
	beyondProcess figure = func(r *Report, _ ...*Report) float64 { return inMebibytes(r.Details.Beyond, r.Workers+r.Servers) }
	beyondPair    figure = func(r *Report, _ ...*Report) float64 { return inMebibytes(r.Details.Beyond, r.Details.Pairs) }
)

// aboveOf is what a transfer of the bus takes above the plan alone.
var aboveOf figure = func(r *Report, _ ...*Report) float64 { return r.Details.Above }

// allocationsEach is per run, of the process that has most, rounded so that heartbeats and timers do not count.
var allocationsEach figure = func(r *Report, _ ...*Report) float64 { return rounded(r.Details.AllocsMost, 0) }

// messagesEach is per run and pair, both ways.
var messagesEach figure = func(r *Report, _ ...*Report) float64 { return r.Details.Messages }

// inMebibytes is the part of so many bytes that each of n has.
func inMebibytes(bytes int64, n int) float64 { return float64(bytes) / float64(max(n, 1)) / (1 << 20) }

// resharding is a refit of the default model. change sets what differs.
func resharding(v Van, change refit.Spec) Options {
	return Options{Workload: Refit, Van: v, Refit: change}
}

// peersGoals are about nodes with the role peer.
func peersGoals() (goals []Goal) {
	p2p := func(v Van) Options { return Options{Workload: P2P, Van: v} }
	goals = []Goal{
		{Name: "shm, 8 bytes to a peer and back: p50", Options: p2p(Shm), Unit: "us", Bound: 2, figure: p50Of},
		{Name: "TCP, 8 bytes to a peer and back: p50 by bare socket", Options: p2p(TCP), Unit: "x", Bound: 1.5, figure: ratioOf},
	}
	for _, c := range []struct {
		name   string
		change refit.Spec
		bound  float64
	}{
		{"", refit.Spec{}, 0.9},
		{", 1 to 1", refit.Spec{Pair: true}, 0.9},
		{", columns, rows of 2 KiB", refit.Spec{Dim: 1}, 0.85},
		{", columns, rows of 512 B", refit.Spec{Dim: 1, Row: 512}, 0.7},
		{", columns, rows of 64 B", refit.Spec{Dim: 1, Row: 64}, 0.7},
		{", only the destinations shared", refit.Spec{Memory: refit.Destinations}, 0.85},
		{", only the sources shared", refit.Spec{Memory: refit.Sources}, 0.85},
		{", no memory shared", refit.Spec{Memory: refit.Torch}, 0.45},
	} {
		goals = append(goals, Goal{
			Name:    "shm, resharding of 1 GiB" + c.name + ": share of the rate of bare copies",
			Options: resharding(Shm, c.change), Bound: c.bound, Least: true, figure: shareOf,
		})
	}
	for _, v := range []Van{Shm, TCP} {
		goals = append(goals,
			Goal{Name: vanTitle(v) + ", a collector fills a slot of 16 MiB: share of the bare rate", Options: Options{Workload: Replay, Van: v, Push: 64 << 10}, Bound: 0.9, Least: true, figure: shareOf},
			Goal{Name: vanTitle(v) + ", a batch of 16 MiB that was prepared one tick ahead: p50", Options: Options{Workload: Replay, Van: v, Inflight: 2}, Unit: "us", Bound: 20, figure: p50Of})
	}
	shm, tcp, empty := resharding(Shm, refit.Spec{}), resharding(TCP, refit.Spec{}), resharding(Shm, refit.Spec{Moves: 10000})
	here, there := Options{Workload: Particles, Van: Shm}, Options{Workload: Particles, Van: Shm, Processes: Processes{Apart: true}}
	within, apart := Options{Workload: Bus, Van: Shm}, Options{Workload: Bus, Van: Shm, Processes: Processes{Apart: true}}
	return append(goals,
		Goal{Name: "message of 8 bytes to a particle of the same peer and back: p50", Options: here, Unit: "us", Bound: 3, figure: p50Of},
		Goal{Name: "shm, message of 8 bytes to a particle of another peer and back: p50", Options: there, Unit: "us", Bound: 6, figure: p50Of},
		Goal{Name: "shm, transfer of a registered tensor over the bus, agent in the process: above the plan alone", Options: within, Unit: "us", Bound: 20, figure: aboveOf},
		Goal{Name: "shm, transfer of a registered tensor over the bus, agent in its own process: above the plan alone", Options: apart, Unit: "us", Bound: 100, figure: aboveOf},
		Goal{Name: "TCP, resharding of 1 GiB: share of the rate of bare sockets", Options: tcp, Bound: 0.9, Least: true, figure: shareOf},
		Goal{Name: "shm, resharding of 1 GiB: memory beyond the models, by processes", Options: shm, Unit: "MiB", Bound: 8, figure: beyondProcess},
		Goal{Name: "TCP, resharding of 1 GiB: memory beyond the models, by pairs", Options: tcp, Unit: "MiB", Bound: 16, figure: beyondPair},
		Goal{Name: "shm, 10,000 moves of 8 bytes in 8 pairs: time of a run", Options: empty, Unit: "ms", Bound: 3, figure: millisOf},
		Goal{Name: "shm, 10,000 moves of 8 bytes in 8 pairs: messages of a pair in a run", Options: empty, Bound: 2, figure: messagesEach},
		Goal{Name: "shm, 10,000 moves of 8 bytes in 8 pairs: allocations of a run, by processes", Options: empty, figure: allocationsEach},
	)
}

// reshardingGoals compare resharding by a peer with that of stepvan, which is the limit of the peer.
func reshardingGoals(peer Nodes) (goals []Goal) {
	for _, v := range []Van{Shm, TCP} {
		o, bound := resharding(v, refit.Spec{}), 1.
		switch {
		case peer == GlooNodes && v == Shm:
			bound = 3
		case peer == GlooNodes:
			bound = 1.3
		}
		o.Nodes = peer
		goals = append(goals, Goal{Name: vanTitle(v) + ", resharding of 1 GiB: time of " + string(peer) + " by that of stepvan", Options: o, Unit: "x", Bound: bound, Least: true, figure: ratioOf})
	}
	return goals
}
