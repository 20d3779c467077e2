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
	c := &coordinator{opts: o, measured: newLatencies(), limit: newLatencies(), exchanges: 1000, allocs: 8, rounds: []round{
		{p50: 400, limit: 100, elapsed: 400, cpu: 700, memcpy: 50},
		{p50: 500, limit: 400.5, elapsed: 500, cpu: 750, memcpy: 55.05},
		{p50: 1000, limit: 800, elapsed: 600, cpu: 800, memcpy: 60},
	}}
	for us := 1; us <= 1000; us++ {
		c.measured.add(time.Duration(us) * time.Microsecond)
		c.limit.add(time.Duration(us) * time.Microsecond / 2)
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
	require.Equal(t, []float64{400, 500, 1000}, r.Samples.P50)
	require.Equal(t, []float64{4, 1.248, 1.25}, r.Samples.Ratio)
	require.Equal(t, Range{450, 750}, r.P50Range)
	require.Equal(t, Range{1.249, 2.625}, r.Ratios)
	require.InDelta(t, 55.05, r.Memcpy, 1e-9)
	require.InDelta(t, 400, r.Memory, 0.01, "2.625 MiB in 55.05 us")
	require.Len(t, r.Curve.Latency, len(levels))
	require.Len(t, r.Curve.Limit, len(levels))
	require.InEpsilon(t, 500, r.Curve.Latency[slices.Index(levels, 50)], 0.001)
	require.InEpsilon(t, 500, r.Curve.Limit[slices.Index(levels, 100)], 0.001)
	require.Contains(t, r.Machine, "cores, Linux ")
	require.Equal(t, "tcp afd 2w3s 896KiB/1.75MiB x4", r.Name())
}

func TestTables(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteTable(&b, example(t), &Report{Limit: limitOneWorker}, &Report{Limit: limitStages}))
	require.Regexp(t, `afd +tcp +2w3s 896KiB/1\.75MiB x4 +500µs +30% .* socket ping-pong +400\.5µs +1\.25 +55% `, b.String())
	require.Contains(t, b.String(), "\none worker: ")
	require.Contains(t, b.String(), "\nmemcpy in one thread: 2688KiB 55.05µs (50 GB/s).\n")
	require.Contains(t, b.String(), "\nideal pipeline: ")
	b.Reset()
	require.NoError(t, WriteTable(&b, &Report{Workload: Batch, Ratio: 3}, &Report{Van: Shm, Workload: Echo, Workers: 1, Servers: 1, Progress: "auto", Nodes: TorchNodes, Limit: limitGo, Over: 2.345}))
	require.Regexp(t, `batch .* - +- +- `, b.String())
	require.Contains(t, b.String(), "\ngo nodes: the same between Go nodes, in turns with those in Python. Above it: shm echo 1w1s torch 2.35µs.\n")
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
	r := &Report{Samples: Samples{P50: []float64{3, 5, 10, 1}}}
	r.compareWithGo(&Report{Samples: Samples{P50: []float64{1, 2, 5}}, Curve: Curve{Latency: []float64{9}, Count: 4}})
	require.InDelta(t, 3, r.Over, 1e-9)
	require.InDelta(t, 2.5, r.Ratio, 1e-9)
	require.InDelta(t, 2, r.LimitP50, 1e-9)
	require.Equal(t, []float64{3, 2.5, 2}, r.Samples.Ratio)
	require.Equal(t, Curve{Limit: []float64{9}, LimitCount: 4}, r.Curve)
}

// Each goal reads the figure that its name says.
func TestGoalsReadTheirFigure(t *testing.T) {
	r := &Report{Ratio: 1.25, Allocs: 0.6, P50: 1000, P99: 5000, Max: 70_000, Over: 7}
	for _, g := range slices.Concat(Goals(), PythonGoals(TorchNodes)) {
		want := map[string]float64{
			"p50": 1000, "p99": 5000, "shm, AFD exchange, one copy: p50 by copy and flag of two bare processes": 1.25,
			"p50 by bare socket": 1.25, "p50 by Go netpoll": 1.25, "share of the bare rate": 0.8, "p99 by p50": 5, "longest": 70,
			"cost of a request by that of one worker": 1.25, "allocations per exchange": 1, "start, one exchange and stop: p50": 1,
			"p50 above that of Go": 7, "p50 by that of Go": 1.25,
		}
		figure := g.Name[strings.LastIndex(g.Name, ": ")+2:]
		expected, known := want[g.Name]
		if !known {
			expected, known = want[figure]
		}
		if strings.HasPrefix(g.Name, "shm, AFD exchange, one copy") {
			expected, known = 1.25, true
		}
		require.True(t, known, g.Name)
		require.InDelta(t, expected, g.figure(r), 1e-9, g.Name)
	}
}

// Each measurement is made once, and every goal finds its own.
func TestPlanOfTheGoals(t *testing.T) {
	goals := slices.Concat(Goals(), PythonGoals(TorchNodes))
	plan, places := planGoals(goals, Options{Node: []string{"x"}, Python: []string{"x"}, Rounds: 7})
	require.NoError(t, plan.Check())
	all := slices.Concat(plan...)
	seen := map[string]bool{}
	for i := range all {
		require.False(t, seen[all[i].String()], all[i].String())
		seen[all[i].String()] = true
		require.Equal(t, 7, all[i].Rounds)
	}
	for i, g := range goals {
		require.Equal(t, g.Options.String(), all[places[i]].String(), g.Name)
	}
	require.Contains(t, seen, "shm afd 1w1s 896KiB/1.75MiB in place")
	require.Contains(t, seen, "tcp echo 1w1s 8B/8B park")
	require.Contains(t, seen, "shm batch 8w1s torch 8B/8B x64")
	require.Contains(t, seen, "mem incast 256w1s 8B/8B")
}

func TestTimesForPeople(t *testing.T) {
	for us, want := range map[float64]string{0: "0s", 7.4812: "7.48µs", 1234.56: "1.23ms", 2500000: "2.5s"} {
		require.Equal(t, want, micros(us))
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
