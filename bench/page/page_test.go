package page

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
		Workload: bench.Echo, Van: van, Workers: 1, Servers: 1, PushBytes: push, PullBytes: push, Inflight: 1, Progress: "auto",
		P50: 1000 + number, P90: 2e3, P99: 3000 + number, P999: 4e3, Max: 5e3, Limit: "socket ping-pong", LimitP50: 500 + number, Ratio: 2 + number/1000,
		Memcpy: 1, Machine: "A processor, 2 cores",
		Curve: bench.Curve{Percent: []float64{50, 99, 100}, Latency: []float64{100 + number, 2e3, 3e3}, Count: 1000, Limit: []float64{50 + number, 1e3, 2e3}, LimitCount: 1000},
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
	alone.Workload, alone.InPlace, alone.PullBytes, alone.Progress = bench.AFD, true, 1835008, "park"
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

// option is a chart as the browser gets it.
type option struct {
	Series []struct {
		Name string
		Data []struct{ Value [2]float64 }
	}
	Legend struct{ Selected map[string]bool }
	YAxis  []struct{ Type string }
}

// options reads the charts of a page: names of functions stand there without quotes.
func options(t *testing.T, text string) (out []option) {
	t.Helper()
	function := regexp.MustCompile(`"(formatter)":([a-zA-Z]+(\([a-zA-Z,]+\))?)`)
	for _, m := range regexp.MustCompile(`(?m)^draw\("chart\d+", (.*)\);$`).FindAllStringSubmatch(text, -1) {
		var o option
		require.NoError(t, json.Unmarshal([]byte(function.ReplaceAllString(m[1], `"$1":"$2"`)), &o), m[1])
		require.Regexp(t, function, m[1])
		out = append(out, o)
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
	all := options(t, write(t, c))
	require.Len(t, all, 3+3+1, "curves, distributions of the sweep, and one alone")
	names := func(o option) (out []string) {
		for _, s := range o.Series {
			out = append(out, s.Name)
		}
		return out
	}
	require.Equal(t, []string{"tcp", "tcp limit", "mem", "mem limit", "tcp p99", "mem p99", "one memcpy of both"}, names(all[0]))
	require.Equal(t, map[string]bool{"tcp p99": false, "mem p99": false}, all[0].Legend.Selected)
	require.Equal(t, []string{"tcp", "mem"}, names(all[1]))
	require.Equal(t, []string{"tcp", "tcp limit", "mem", "mem limit"}, names(all[2]))
	for _, o := range all[3:6] {
		require.Equal(t, []string{"tcp", "tcp limit", "mem", "mem limit"}, names(o))
	}
	require.Equal(t, []string{"shm in place park", "shm in place park limit"}, names(all[6]))
	for i, o := range all {
		require.Equal(t, map[bool]string{true: "value", false: "log"}[i == 1], o.YAxis[0].Type)
	}
}

// Every figure stands where it belongs.
func TestPointsOfTheCurves(t *testing.T) {
	all := options(t, write(t, example()))
	require.Equal(t, [2]float64{3, 1001}, all[0].Series[0].Data[0].Value)
	require.Equal(t, [2]float64{20, 503}, all[0].Series[1].Data[2].Value)
	require.Equal(t, [2]float64{12, 1005}, all[0].Series[2].Data[1].Value)
	require.Equal(t, [2]float64{3, 2.001}, all[1].Series[0].Data[0].Value)
	require.InDelta(t, 2*1048576/1003.0/1e3, all[2].Series[0].Data[2].Value[1], 1e-9)
	shape := all[6].Series[0].Data
	require.InDelta(t, 0.301, shape[0].Value[0], 0.001)
	require.InDelta(t, 199, shape[0].Value[1], 1e-9)
	require.InDelta(t, 2, shape[1].Value[0], 1e-9)
	require.Equal(t, [2]float64{3, 3000}, shape[2].Value, "the maximum of a thousand")
}

func TestTablesOfThePage(t *testing.T) {
	text := write(t, example())
	require.Contains(t, text, "A processor, 2 cores")
	require.Contains(t, text, "1970-01-01 00:00 UTC · stepvan v9 · 1 of 3 goals met")
	require.Contains(t, text, "fast &lt;enough&gt;")
	for _, part := range []string{`≤ 1.5 ×</td><td class="n"><b>1.25 ×</b>`, `badge met">met<`, `≤ 1 µs`, `badge missed">missed<`, `≥ 0.9`, `badge unknown">not measured: no such van<`} {
		require.Contains(t, text, part)
	}
	require.Contains(t, text, "1w1s 896KiB/1.75MiB in place park")
	require.Contains(t, text, "<td class=\"n\"><b>1.1 ms</b>")
}

func TestAPageOfNothing(t *testing.T) {
	text := write(t, &Content{Made: time.Now()})
	require.Empty(t, options(t, text))
	require.NotContains(t, text, "<h2>Goals")
}

// What has been measured once, or cannot be shown, leaves no holes.
func TestMeasurementsWithoutCurves(t *testing.T) {
	barrier := report(bench.TCP, 0, 1)
	barrier.Workload, barrier.PullBytes = bench.Barrier, 0
	start := report(bench.TCP, 8, 1)
	start.Workload, start.Curve = bench.Start, bench.Curve{}
	all := options(t, write(t, &Content{Reports: []*bench.Report{barrier, start}}))
	require.Len(t, all, 1)
	require.Equal(t, "tcp", all[0].Series[0].Name)
}

// A way with few sizes does not get a curve. A measurement that was made twice gets one line.
func TestCurvesNeedSizes(t *testing.T) {
	c := example()
	parked := report(bench.TCP, 8, 50)
	parked.Progress = "park"
	c.Reports = append(c.Reports[:6:6], parked, report(bench.TCP, 8, 51))
	all := options(t, write(t, c))
	require.Len(t, all, 3+3+1)
	require.Len(t, all[0].Series, 7)
	require.Len(t, all[3].Series, 4)
	require.Equal(t, "tcp park", all[6].Series[0].Name)
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

func TestDurations(t *testing.T) {
	for us, want := range map[float64]string{0.18: "0.18 µs", 7.4812: "7.48 µs", 1234.56: "1.23 ms", 2500000: "2.5 s"} {
		require.Equal(t, want, duration(us), fmt.Sprint(us))
	}
}
