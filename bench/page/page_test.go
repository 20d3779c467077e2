package page

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/bench"
)

// report has figures that only it has.
func report(van bench.Van, push int64, number float64) *bench.Report {
	return &bench.Report{
		Setup:   bench.Setup{Workload: bench.Echo, Van: van, Workers: 1, Servers: 1, PushBytes: push, PullBytes: push, Inflight: 1, Progress: "auto"},
		Figures: bench.Figures{P50: 1000 + number, P90: 2e3, P99: 3000 + number, P999: 4e3, Max: 5e3, Limit: "socket ping-pong", LimitP50: 500 + number, Ratio: 2 + number/1000},
		Details: bench.Details{
			Memcpy: 1, Machine: "A processor, 2 cores",
			Curve: bench.Curve{Percent: []float64{50, 99, 100}, Latency: []float64{100 + number, 2e3, 3e3}, Count: 1000, Limit: []float64{50 + number, 1e3, 2e3}, LimitCount: 1000},
		},
	}
}

func example() *Content {
	c := &Content{Made: time.Unix(0, 0).UTC(), Version: "v9"}
	number := 0.0
	for _, van := range []bench.Van{bench.TCP, bench.Mem} {
		for _, size := range []int64{8, 4096, 1 << 20} {
			number++
			c.Reports = append(c.Reports, report(van, size, number))
		}
	}
	alone := report(bench.Shm, 917504, 99)
	alone.Workload, alone.Variant.InPlace, alone.PullBytes, alone.Progress = bench.AFD, true, 1835008, "park"
	c.Reports = append(c.Reports, alone)
	c.GoalResults = []bench.GoalResult{
		{Goal: bench.Goal{Name: "fast <enough>", Bound: 1.5, Unit: "x"}, Figure: 1.25},
		{Goal: bench.Goal{Name: "slow", Bound: 1, Unit: "us"}, Figure: 7},
		{Goal: bench.Goal{Name: "unknown", Bound: 0.9, Least: true}, Err: errors.New("no such van")},
	}
	return c
}

func write(t *testing.T, c *Content) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, c))
	return b.String()
}

// charts reads the charts of a page as the browser gets them. Each format is a function of page.js.
func charts(t *testing.T, text string) (out []chart) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^draw\("chart\d+-\d+", (.*)\);$`).FindAllStringSubmatch(text, -1) {
		var c chart
		require.NoError(t, json.Unmarshal([]byte(m[1]), &c), m[1])
		for _, format := range []string{c.X.Format, c.Y.Format} {
			require.Contains(t, scriptText, "\n  "+format+": ")
		}
		out = append(out, c)
	}
	return out
}

func TestThePageNeedsNothingElse(t *testing.T) {
	text := write(t, example())
	library, err := unpack(echarts)
	require.NoError(t, err)
	external := regexp.MustCompile(`(?i)(src|href|action|data)\s*=\s*["'` + "`" + `]?\s*(https?:)?//`)
	require.Empty(t, external.FindAllString(text, -1), "the library included")
	require.Contains(t, text, library)
	own := strings.Replace(text, library, "", 1)
	require.NotRegexp(t, `(?i)<(link|iframe|img|object|embed)\b`, own)
	require.NotRegexp(t, `(?i)@import|url\(|://`, own)
	require.Equal(t, 3, strings.Count(text, "</script>"))
	require.Contains(t, library, "Licensed to the Apache Software Foundation", "the licence stays with what it is about")
}

func TestThePageHasAllSeries(t *testing.T) {
	c := example()
	all := charts(t, write(t, c))
	require.Len(t, all, 3+3+1, "curves, distributions of the sweep, and one alone")
	names := func(c chart) (out []string) {
		for _, l := range c.Lines {
			out = append(out, l.Name)
			require.Equal(t, strings.HasSuffix(l.Name, " p99"), l.Hidden)
		}
		return out
	}
	require.Equal(t, []string{"tcp", "tcp limit", "mem", "mem limit", "tcp p99", "mem p99", "one memcpy of both"}, names(all[0]))
	require.Equal(t, []string{"tcp", "mem"}, names(all[1]))
	require.Equal(t, []string{"tcp", "tcp limit", "mem", "mem limit"}, names(all[2]))
	for _, o := range all[3:6] {
		require.Equal(t, []string{"tcp", "tcp limit", "mem", "mem limit"}, names(o))
	}
	require.Equal(t, []string{"shm in place park", "shm in place park limit"}, names(all[6]))
	for i, o := range all {
		require.Equal(t, i != 1, o.Y.Log)
	}
}

// Every figure stands where it belongs.
func TestPointsOfTheCurves(t *testing.T) {
	all := charts(t, write(t, example()))
	require.Equal(t, [2]float64{3, 1001}, all[0].Lines[0].Points[0])
	require.Equal(t, [2]float64{20, 503}, all[0].Lines[1].Points[2])
	require.Equal(t, [2]float64{12, 1005}, all[0].Lines[2].Points[1])
	require.Equal(t, [2]float64{3, 2.001}, all[1].Lines[0].Points[0])
	require.InDelta(t, 2*1048576/1003.0/1e3, all[2].Lines[0].Points[2][1], 1e-9)
	shape := all[6].Lines[0].Points
	require.InDelta(t, 0.301, shape[0][0], 0.001)
	require.InDelta(t, 199, shape[0][1], 1e-9)
	require.InDelta(t, 2, shape[1][0], 1e-9)
	require.Equal(t, [2]float64{3, 3000}, shape[2], "the maximum of a thousand")
}

func TestTablesOfThePage(t *testing.T) {
	text := write(t, example())
	require.Contains(t, text, "A processor, 2 cores")
	require.Contains(t, text, "1970-01-01 00:00 UTC · stepvan v9 · 1 of 3 goals met")
	require.Contains(t, text, "fast &lt;enough&gt;")
	for _, part := range []string{`≤ 1.5 ×</td><td class="n strong">1.25 ×<`, `badge met">met<`, `≤ 1 µs`, `badge missed">missed<`, `≥ 0.9`, `badge unknown">not measured: no such van<`} {
		require.Contains(t, text, part)
	}
	require.Contains(t, text, "1w1s 896KiB/1.75MiB in place park")
	require.Contains(t, text, `<td class="n strong">1.099ms<`)
}

func TestAPageOfNothing(t *testing.T) {
	text := write(t, &Content{Made: time.Now()})
	require.Empty(t, charts(t, text))
	require.NotContains(t, text, "<h2>Goals")
}

// What has been measured once, or cannot be shown, leaves no holes.
func TestMeasurementsWithoutCurves(t *testing.T) {
	barrier := report(bench.TCP, 0, 1)
	barrier.Workload, barrier.PullBytes = bench.Barrier, 0
	start := report(bench.TCP, 8, 1)
	start.Workload, start.Details.Curve = bench.Start, bench.Curve{}
	all := charts(t, write(t, &Content{Reports: []*bench.Report{barrier, start}}))
	require.Len(t, all, 1)
	require.Equal(t, "tcp", all[0].Lines[0].Name)
}

// A way with few sizes does not get a curve. A measurement that was made twice gets one line.
func TestCurvesNeedSizes(t *testing.T) {
	c := example()
	parked := report(bench.TCP, 8, 50)
	parked.Progress = "park"
	c.Reports = append(c.Reports[:6:6], parked, report(bench.TCP, 8, 51))
	all := charts(t, write(t, c))
	require.Len(t, all, 3+3+1)
	require.Len(t, all[0].Lines, 7)
	require.Len(t, all[3].Lines, 4)
	require.Equal(t, "tcp park", all[6].Lines[0].Name)
}

func TestColoursDiffer(t *testing.T) {
	f := &family{}
	for _, van := range bench.Vans {
		for _, progress := range bench.Progresses {
			r := report(van, 8, 0)
			r.Progress = progress
			f.reports = append(f.reports, r)
		}
	}
	f.reports = f.reports[:10]
	seen := map[string]string{}
	for way, colour := range f.colours() {
		require.Empty(t, seen[colour], "%s and %s", way, seen[colour])
		seen[colour] = way
	}
	require.Equal(t, "tcp", seen[palette["tcp"]])
	f.reports = f.reports[1:2]
	require.Equal(t, map[string]string{"tcp spin": palette["tcp"]}, f.colours())
}

// thinking is a report whose server computes.
func thinking(van bench.Van, think string, number float64) *bench.Report {
	r := report(van, 8, number)
	r.Variant.Think = think
	r.Details.Curve = bench.Curve{Limit: make([]float64, 18), Latency: make([]float64, 18)}
	r.Details.Curve.Limit[8] = 50 + number
	return r
}

// Constant times make curves of p50 and p99. Nodes in Python have no limit of their own there.
func TestCurvesByTheTimeOfComputing(t *testing.T) {
	c := &Content{}
	for i, think := range []string{"1ms", "100us", "10us", "100us-1ms", "90%100us+10%5ms"} {
		c.Reports = append(c.Reports, thinking(bench.Shm, think, float64(i)), thinking(bench.TCP, think, 10+float64(i)))
		python := thinking(bench.Shm, think, 20+float64(i))
		python.Variant.Nodes = bench.NumpyNodes
		c.Reports = append(c.Reports, python)
	}
	c.Reports = append(c.Reports, thinking(bench.Mem, "1ms", 30), thinking(bench.Shm, "1ms", 40))
	text := write(t, c)
	require.Contains(t, text, "Above the computing: echo, 1 to 1, 8B pushed, 8B pulled")
	all := charts(t, text)
	require.Len(t, all, 2)
	for i, o := range all {
		var names []string
		for _, l := range o.Lines {
			names = append(names, l.Name)
		}
		require.Equal(t, []string{"shm", "shm limit", "tcp", "tcp limit", "shm numpy"}, names)
		own, limit := [3]float64{1002, 1001, 1000}, [3]float64{502, 501, 500}
		if i == 1 {
			own, limit = [3]float64{3002, 3001, 3000}, [3]float64{52, 51, 50}
		}
		for at := range 3 {
			require.InDeltaSlice(t, []float64{float64(1 + at), own[at]}, o.Lines[0].Points[at][:], 1e-9)
			require.InDeltaSlice(t, []float64{float64(1 + at), limit[at]}, o.Lines[1].Points[at][:], 1e-9)
		}
	}
}
