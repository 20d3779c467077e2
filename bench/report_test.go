package bench

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// golden is a line of `stepvan bench --json`, which programs read: names and order stay.
const golden = `{"workload":"afd","van":"tcp","workers":2,"servers":3,"push_bytes":917504,"pull_bytes":1835008,"inflight":4,"progress":"auto",` +
	`"p50_us":500.223,"p90_us":900.095,"p99_us":990.207,"p999_us":999.423,"max_us":1000.447,"rate":2000,"gbps":132.121,` +
	`"limit":"socket ping-pong","limit_p50_us":400.5,"ratio":1.25,"allocs_per_op":0.008,"cpu_per_op_us":750}` + "\n"

func example(t *testing.T) *Report {
	t.Helper()
	o, err := Options{Workload: AFD, Workers: 2, Servers: 3, Inflight: 4, Node: []string{"x"}}.complete()
	require.NoError(t, err)
	c := &conductor{
		opts: o, stack: newLatencies(), ratios: []float64{9, 1.25, 1}, limits: []float64{500, 301, 400.5},
		exchanges: 1000, elapsed: 500 * time.Millisecond, allocs: 8, cpu: 750 * time.Millisecond,
	}
	for us := 1; us <= 1000; us++ {
		c.stack.add(time.Duration(us) * time.Microsecond)
	}
	return c.report()
}

func TestReportAsJSON(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, example(t).WriteJSON(&b))
	require.Equal(t, golden, b.String())
}

func TestTables(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteTable(&b, example(t)))
	require.Regexp(t, `afd +tcp +2w3s +896KiB +1\.75MiB +4 +500\.22µs .* 1\.25 `, b.String())
	require.Contains(t, b.String(), "limit: socket ping-pong")
	b.Reset()
	all := Goals()
	require.NoError(t, WriteGoals(&b, []Verdict{{Goal: all[0], Figure: 2.51}, {Goal: all[1], Figure: 0}}))
	require.Regexp(t, `echo of 8 bytes, p50.* 2\.5 x +2\.51 x +missed\n`, b.String())
	require.Regexp(t, `echo of 8 bytes, allocations.* 0 +0 +met\n`, b.String())
}

func TestGoalsReadTheirFigure(t *testing.T) {
	r := &Report{Ratio: 1.4, Allocs: 0.6, P50: 123456}
	var got []float64
	for _, g := range Goals() {
		got = append(got, g.of(r))
	}
	require.Equal(t, []float64{1.4, 1, 1.4, 1, 123.456}, got)
}

func TestTimesForPeople(t *testing.T) {
	for us, want := range map[float64]string{0: "0s", 7.4812: "7.48µs", 1234.56: "1.23ms", 2500000: "2.5s"} {
		require.Equal(t, want, micros(us))
	}
}
