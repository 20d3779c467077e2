package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/launch"
)

// golden is how a line of `stepvan bench --json` begins, which programs read: names and order stay.
const golden = `{"workload":"afd","van":"tcp","workers":2,"servers":3,"push_bytes":917504,"pull_bytes":1835008,"inflight":4,"progress":"auto",` +
	`"p50_us":500,"p90_us":900.095,"p99_us":990.207,"p999_us":999.423,"max_us":1000.447,"rate":2000,"gbps":132.121,` +
	`"limit":"socket ping-pong","limit_p50_us":400.5,"ratio":1.25,"allocs_per_op":0.008,"cpu_per_op_us":750,`

func example(t *testing.T) *Report {
	t.Helper()
	o, err := Options{Workload: AFD, Workers: 2, Servers: 3, Inflight: 4, Node: []string{"x"}}.withDefaults()
	require.NoError(t, err)
	c := newCoordinator(&o, nil, nil)
	c.exchanges, c.allocs, c.copies = 1000, 8, []float64{50, 55.05, 60}
	c.samples.add(round{p50: 400, limit: 100, elapsed: 400, cpu: 700})
	c.samples.add(round{p50: 500, limit: 400.5, elapsed: 500, cpu: 750})
	c.samples.add(round{p50: 1000, limit: 800, elapsed: 600, cpu: 800})
	for us := 1; us <= 1000; us++ {
		c.exchange.all.add(time.Duration(us) * time.Microsecond)
		c.limit.all.add(time.Duration(us) * time.Microsecond / 2)
	}
	return c.report()
}

func TestReportAsJSON(t *testing.T) {
	var b bytes.Buffer
	r := example(t)
	require.NoError(t, r.WriteJSON(&b))
	require.Equal(t, golden, b.String()[:min(len(golden), b.Len())])
	require.Equal(t, 1, strings.Count(b.String(), "\n"))
	var back Report
	require.NoError(t, json.Unmarshal(b.Bytes(), &back))
	require.Equal(t, r, &back)
}

func TestFurtherFieldsOfAReport(t *testing.T) {
	r := example(t)
	require.Equal(t, []float64{400, 500, 1000}, r.Details.Samples.P50)
	require.Equal(t, []float64{4, 1.248, 1.25}, r.Details.Samples.Ratio)
	require.Equal(t, Range{450, 750}, r.Details.P50Range)
	require.Equal(t, Range{1.249, 2.625}, r.Details.Ratios)
	require.InDelta(t, 55.05, r.Details.Memcpy, 1e-9)
	require.InDelta(t, 400, r.Details.Memory, 0.01, "2.625 MiB in 55.05 us")
	require.Len(t, r.Details.Curve.Latency, len(levels))
	require.Len(t, r.Details.Curve.Limit, len(levels))
	require.InEpsilon(t, 500, r.Details.Curve.Latency[slices.Index(levels, 50)], 0.001)
	require.InEpsilon(t, 500, r.Details.Curve.Limit[slices.Index(levels, 100)], 0.001)
	require.Contains(t, r.Details.Machine, "cores, Linux ")
	require.Equal(t, "tcp afd 2w3s 896KiB/1.75MiB x4", r.Name())
}

func TestTables(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteTable(&b, example(t), &Report{Figures: Figures{Limit: limitOneWorker}}, &Report{Figures: Figures{Limit: limitStages}}))
	require.Regexp(t, `afd +tcp +2w3s 896KiB/1\.75MiB x4 +500µs +30% .* socket ping-pong +400\.5µs +495\.1µs +1\.25 +55% `, b.String())
	require.Contains(t, b.String(), "\none worker: ")
	require.Contains(t, b.String(), "\nmemcpy in one thread: 2688KiB 55.05µs (50 GB/s).\n")
	require.Contains(t, b.String(), "\nideal pipeline: ")
	b.Reset()
	require.NoError(t, WriteTable(&b, &Report{Setup: Setup{Workload: Batch}, Figures: Figures{Ratio: 3}}, &Report{
		Setup:   Setup{Van: Shm, Workload: Echo, Workers: 1, Servers: 1, Progress: "auto"},
		Variant: Variant{Nodes: TorchNodes}, Figures: Figures{Limit: limitGo}, Details: Details{Over: 2.345},
	}))
	require.Regexp(t, `batch .* - +- +- `, b.String())
	require.Contains(t, b.String(), "\ngo nodes: the same between Go nodes, in turns with those in Python.\n")
	require.Contains(t, b.String(), "\nabove go nodes: shm echo 1w1s torch 2.35µs.\n")
	require.Contains(t, b.String(), "\nbatch: processor time ")
	b.Reset()
	goalResults := []GoalResult{
		{Goal: Goal{Name: "a", Bound: 2.5, Unit: "x"}, Figure: 2.51},
		{Goal: Goal{Name: "b"}},
		{Goal: Goal{Name: "c", Bound: 0.9, Least: true}, Figure: 0.91},
		{Goal: Goal{Name: "d", Bound: 0.9, Least: true}, Figure: 0.89},
		{Goal: Goal{Name: "e", Bound: 1}, Err: errors.New("no such van\nand more")},
	}
	require.NoError(t, WriteGoals(&b, goalResults))
	for _, line := range []string{`a +<= 2\.5 x +2\.51 x +missed`, `b +<= 0 +0 +met`, `c +>= 0\.9 +0\.91 +met`, `d +>= 0\.9 +0\.89 +missed`, `e +<= 1 +- +not measured: no such van`} {
		require.Regexp(t, `(?m)^`+line+`$`, b.String())
	}
}

func TestAgainstGo(t *testing.T) {
	r := &Report{Details: Details{Samples: Samples{P50: []float64{3, 5, 10, 1}}}}
	r.compareWith(&Report{Details: Details{Samples: Samples{P50: []float64{1, 2, 5}}, Curve: Curve{Latency: []float64{9}, Count: 4}}})
	require.InDelta(t, 3, r.Details.Over, 1e-9)
	require.InDelta(t, 2.5, r.Ratio, 1e-9)
	require.InDelta(t, 2, r.LimitP50, 1e-9)
	require.Equal(t, []float64{3, 2.5, 2}, r.Details.Samples.Ratio)
	require.Equal(t, Curve{Limit: []float64{9}, LimitCount: 4}, r.Details.Curve)
}

// The ratio of incast takes the side of the cost that grew more.
func TestAgainstOneWorker(t *testing.T) {
	r := &Report{Setup: Setup{Workload: Incast}, Details: Details{Samples: Samples{P50: []float64{9, 9}, Rate: []float64{5e5, 1e6}, CPU: []float64{2, 6}}}}
	r.compareWith(&Report{Details: Details{Samples: Samples{P50: []float64{1, 1}, Rate: []float64{1e6, 1e6}, CPU: []float64{2, 2}}}})
	require.Equal(t, []float64{1, 1}, r.Details.Samples.Limit)
	require.Equal(t, []float64{2, 3}, r.Details.Samples.Ratio)
	require.Zero(t, r.Details.Over)
}

// A transfer of the bus is above its limit by the median of the differences, and other workloads do not say.
func TestAboveThePlan(t *testing.T) {
	r := &Report{Setup: Setup{Workload: Bus}, Details: Details{Samples: Samples{P50: []float64{30, 45, 90}, Limit: []float64{10, 5, 60}}}}
	r.setAbove()
	require.InDelta(t, 30, r.Details.Above, 1e-9)
	var b bytes.Buffer
	require.NoError(t, WriteTable(&b, r))
	require.Regexp(t, `above limit *\n.* 30µs *\n`, b.String())
	r.Workload, r.Details.Above = P2P, 0
	r.setAbove()
	require.Zero(t, r.Details.Above)
}

// Each goal reads the figure that its name says.
func TestGoalsReadTheirFigure(t *testing.T) {
	r := &Report{Figures: Figures{Ratio: 1.25, Allocs: 0.6, P50: 1000, P99: 5000, Max: 70_000, LimitP50: 500, Rate: 90}, Details: Details{Over: 7, Waiting: 0.25, Lost: 0.03, Throttled: Throttled{Count: 5, Time: 0.75}, Beyond: 12 << 20, Pairs: 2, Above: 17, Messages: 2.03, AllocsMost: 0.2}}
	smaller := &Report{Figures: Figures{P50: 10, P99: 10, Rate: 100}, Details: Details{Throttled: Throttled{Time: 0.5}}}
	half := &Report{Figures: Figures{P50: 500, P99: 1000}}
	for _, g := range allGoals() {
		want := map[string]float64{
			"p50": 1000, "p99": 5000, "p50 above it": 1000, "p99 above it": 5000,
			"p50 by bare socket": 1.25, "p50 by bare sockets": 1.25, "p50 by Go netpoll": 1.25, "p50 by ideal pipeline": 1.25,
			"p50 by copy and flag of two bare processes": 1.25, "share of the bare rate": 0.8, "p99 by p50": 5, "longest": 70,
			"cost of a request by that of one worker": 1.25, "allocations per exchange": 1, "processor time": 25, "processor time of the waiter": 25,
			"p50 above that of Go": 7, "p50 by that of Go": 1.25, "p50 by 1.3 x or 5 us more than bare socket": 1000 / 650.,
			"p50 by the largest of the constant ones": 2, "p99 by the largest of the constant ones": 5,
			"lost by it": 3, "stopped by it, above park": 25, "rate by that of park": 0.9,
			"share of the rate of bare copies": 0.8, "share of the rate of bare sockets": 0.8, "time of gloo by that of stepvan": 1.25, "time of nixl by that of stepvan": 1.25,
			"memory beyond the models, by processes": 12, "memory beyond the models, by pairs": 6, "time of a run": 1, "allocations of a run, by processes": 0, "messages of a pair in a run": 2.03,
			"above the plan alone": 17, "p50 by that of nixl": 2, "p50 above it by that of nixl": 2, "p99 above it by that of nixl": 5,
		}
		expected, known := want[g.Name[strings.LastIndex(g.Name, ": ")+2:]]
		switch {
		case g.Options.Workload == Start:
			expected = 1
		case strings.HasPrefix(g.Name, "torch: shm, AFD exchange: "):
			expected = 1.25
		}
		require.True(t, known, g.Name)
		require.InDelta(t, expected, g.figure(r, smaller, half), 1e-9, g.Name)
	}
	few := &Report{Figures: Figures{P50: 13, LimitP50: 10}}
	require.InDelta(t, 13/15., byAllowed(1.3, 5)(few), 1e-9, "5 us are more than a third")
}

func allGoals() []Goal {
	return slices.Concat(Goals(), PythonGoals(TorchNodes), PeerGoals(TorchNodes, NixlNodes), PeerGoals(GoNodes, NixlNodes), PeerGoals(GoNodes, GlooNodes))
}

// A goal that needs several measurements tells which one is missing.
func TestAGoalOfSeveralMeasurements(t *testing.T) {
	goals := PeerGoals(NumpyNodes, NixlNodes)[:1]
	own := Outcome{Name: "shm echo 1w1s numpy 8B/8B think 100us", Report: &Report{Figures: Figures{P50: 3}}}
	other := Outcome{Name: "shm echo 1w1s nixl 8B/8B think 100us", Report: &Report{Figures: Figures{P50: 4}}}
	require.InDelta(t, 0.75, Results(goals, []Outcome{own, other})[0].Figure, 1e-9)
	require.ErrorContains(t, Results(goals, []Outcome{own})[0].Err, "the plan lacks shm echo 1w1s nixl")
	other.Err = errors.New("it broke")
	require.Equal(t, other.Err, Results(goals, []Outcome{own, other})[0].Err)
}

// Each measurement is made once, and every goal finds its own.
func TestPlanOfTheGoals(t *testing.T) {
	goals := allGoals()
	plan := PlanGoals(goals, Options{Node: []string{"x"}, Python: []string{"x"}, Rounds: 7})
	require.NoError(t, plan.Check())
	seen := map[string]bool{}
	var outcomes []Outcome
	for _, o := range slices.Concat(plan...) {
		require.False(t, seen[o.String()], o.String())
		seen[o.String()] = true
		require.Equal(t, 7, o.Rounds)
		outcomes = append(outcomes, Outcome{Name: o.String(), Err: errors.New(o.String())})
	}
	for i, r := range Results(goals, outcomes) {
		require.Equal(t, goals[i].Name, r.Name)
		require.EqualError(t, r.Err, goals[i].Options.String())
	}
	results := Results(goals[:1], []Outcome{{Name: goals[0].Options.String(), Report: &Report{Figures: Figures{P50: 0.456}}}})
	require.InDelta(t, 0.46, results[0].Figure, 1e-9)
	require.Contains(t, seen, "shm afd 1w1s 896KiB/1.75MiB in place")
	require.Contains(t, seen, "tcp echo 1w1s 8B/8B park")
	require.Contains(t, seen, "shm batch 8w1s torch 8B/8B x64")
	require.Contains(t, seen, "mem incast 256w1s 8B/8B")
	require.Contains(t, seen, "shm echo 1w1s 8B/8B think 90%100us+10%5ms")
	require.Contains(t, seen, "shm echo 1w1s nixl 8B/8B think 1ms")
	require.Contains(t, seen, "shm refit 8p 1GiB tp4 to tp2ep2 dim 1 rows 64 shared")
	require.Contains(t, seen, "shm refit 6p tp4 to dp2 10000 moves shared")
	require.Contains(t, seen, "tcp refit 8p gloo 1GiB tp4 to tp2ep2 dim 0 shared")
	for _, group := range plan {
		for _, o := range group {
			require.Equal(t, []any{group[0].Van, group[0].Work}, []any{o.Van, o.Work}, "programs of a group do the same")
		}
	}
}

func TestTimesForPeople(t *testing.T) {
	for us, want := range map[float64]string{0: "0µs", 0.185: "0.185µs", 7.48123: "7.481µs", 1234.56: "1.235ms", 2500000: "2.5s"} {
		require.Equal(t, want, Micros(us))
	}
}

func TestReasonsAreOneLine(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("no such van\nand more"), "no such van"},
		{fmt.Errorf("x: %w", &launch.Failure{Stderr: []string{"a warning", "stepvan bench-node: start: no"}}), "start: no"},
		{&launch.Failure{Stderr: []string{"killed"}}, "killed"},
		{&launch.Failure{Status: 3}, " failed: exit status 3"},
	} {
		require.Contains(t, Reason(c.err), c.want)
		require.NotContains(t, Reason(c.err), "\n")
	}
}

// Columns that no report has are left out.
func TestColumnsOfSomeReports(t *testing.T) {
	names := func(reports ...*Report) (out []string) {
		for _, c := range Columns(reports)[len(columns):] {
			out = append(out, c.Name)
		}
		return out
	}
	plain := &Report{Setup: Setup{Workload: Echo, Progress: "auto"}}
	require.Empty(t, names(plain))
	beside := &Report{Variant: Variant{Busy: true}, Details: Details{Lost: -0.001, Waiting: 0.5}}
	require.Equal(t, []string{"waiting", "lost"}, names(plain, beside))
	limited := &Report{Variant: Variant{Quota: 1}, Details: Details{Throttled: Throttled{Count: 9.5, Time: 0.25}}}
	require.Equal(t, []string{"throttled/s", "stopped"}, names(limited, plain))
	var b bytes.Buffer
	require.NoError(t, WriteTable(&b, plain, beside, limited))
	require.Regexp(t, `(?m) - +- +- +-$`, b.String())
	require.Regexp(t, `(?m) 50% +-0\.1% +- +-$`, b.String())
	require.Regexp(t, `(?m) - +- +9\.5 +25%$`, b.String())
}
