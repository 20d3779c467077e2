package compare

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/bench"
)

// series makes a run of three rounds for each median, all of one name.
func series(name string, medians ...float64) Series {
	var runs [][]float64
	for _, m := range medians {
		runs = append(runs, []float64{m, m + 0.5, m - 0.5})
	}
	return rounds(name, runs...)
}

// rounds makes a run of each list of rounds.
func rounds(name string, samples ...[]float64) Series {
	s := Series{Name: name}
	for _, p50 := range samples {
		s.Reports = append(s.Reports, &bench.Report{
			Setup:   bench.Setup{Workload: bench.Echo, Van: bench.TCP, Workers: 1, Servers: 1, PushBytes: 8, PullBytes: 8, Inflight: 1, Progress: "auto"},
			Figures: bench.Figures{P50: p50[0], Rate: 5e4}, Details: bench.Details{Samples: bench.Samples{P50: p50}},
		})
	}
	return s
}

func text(t *testing.T, before, after Series) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, before, after))
	return b.String()
}

func TestADifferenceIsShown(t *testing.T) {
	out := text(t, series("old.json", 100, 101, 102, 103, 104, 105), series("new.json", 80, 81, 82, 83, 84, 85))
	require.Regexp(t, `(?m)^p50 +old\.json +new\.json +delta`, out)
	require.Regexp(t, `(?m)^tcp echo 1w1s 8B/8B +102\.5µs ± +2% +82\.5µs ± +3% +-19\.51% \(p=0\.002 n=6\)`, out)
	require.Regexp(t, `(?m)^exchanges/s +old\.json`, out)
	require.NotContains(t, out, "note:")
}

func TestNoiseIsNoDifference(t *testing.T) {
	out := text(t, series("a", 100, 120, 90, 130, 110, 95), series("b", 101, 119, 92, 128, 112, 96))
	require.Regexp(t, `8B/8B .* ~ \(p=0\.\d+ n=6\)`, out)
	require.NotContains(t, out, "% (p=")
}

// Two runs of one program differ by more than the rounds of each, which a test on rounds takes for a difference.
func TestRoundsAreNoSample(t *testing.T) {
	slow, fast := []float64{100, 101, 102, 103, 104, 105}, []float64{80, 81, 82, 83, 84, 85}
	for name, c := range map[string]struct {
		before, after Series
		want          string
	}{
		"one run each": {rounds("a", slow), rounds("b", fast), `-19\.51% ~ \(needs 4 runs\)`},
		"four of each": {rounds("a", slow, fast, slow, fast), rounds("b", fast, slow, fast, fast), ` ~ \(p=\d\.\d+ n=4\)`},
		"three and many": {
			rounds("a", slow, slow, slow), rounds("b", fast, fast, fast, fast, fast, fast, fast), `-19\.51% ~ \(needs 4 runs\)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := text(t, c.before, c.after)
			require.Regexp(t, `8B/8B .*`+c.want, out)
			require.NotContains(t, out, "% (p=")
		})
	}
}

func TestFourRunsAreEnough(t *testing.T) {
	out := text(t, series("a", 100, 101, 102, 103), series("b", 80, 81, 82, 83))
	require.Contains(t, out, "-19.70% (p=0.029 n=4)")
	require.NotContains(t, out, "needs")
}

func TestTooFewRunsAreSaidToBe(t *testing.T) {
	out := text(t, series("a", 100, 101, 102), series("b", 80, 81, 82))
	require.Contains(t, out, "-19.80% ~ (needs 4 runs)")
	require.NotContains(t, out, "p=")
	require.Equal(t, 1, strings.Count(out, "note: 4 runs in each file"))
}

func TestMeasurementsOfOneFileOnly(t *testing.T) {
	after := series("b", 100.5)
	after.Reports[0].PushBytes, after.Reports[0].PullBytes = 16, 16
	out := text(t, series("a", 50.5), after)
	require.Regexp(t, `(?m)^tcp echo 1w1s 8B/8B +50\.5µs .* - +$`, out)
	require.Regexp(t, `(?m)^tcp echo 1w1s 16B/16B +- +100\.5µs`, out)
	require.NotContains(t, out, "note:")
}

// A report without rounds, as others may write, has its one figure.
func TestAReportWithoutRounds(t *testing.T) {
	a := series("a", 50)
	a.Reports[0].Details.Samples = bench.Samples{}
	require.Regexp(t, `8B/8B +50µs`, text(t, a, a))
}

func TestUnits(t *testing.T) {
	for us, want := range map[float64]string{0.185: "0.185µs", 1234.56: "1.235ms", 2.5e6: "2.5s"} {
		require.Equal(t, want, bench.Micros(us))
	}
	require.Equal(t, "123457", plain(123456.7))
	require.Equal(t, "1.235", plain(1.23456))
}

func TestRead(t *testing.T) {
	var b bytes.Buffer
	for _, r := range rounds("", []float64{1, 2}, []float64{3}).Reports {
		require.NoError(t, r.WriteJSON(&b))
		b.WriteString("\n")
	}
	got, err := Read(&b)
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, []float64{1, 2}, got[0].Details.Samples.P50)
}

func TestWhatIsNoReport(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":   {"\n\n", "it has no report"},
		"no JSON":   {"{\"workload\":\"echo\",\"van\":\"tcp\"}\nBenchmarkX 1\n", "line 2 is not a report (invalid"},
		"other":     {`{"a":1}`, "line 1 is not a report"},
		"too long":  {strings.Repeat("x", longestLine+1), "line 1: "},
		"many rows": {`[1,2]`, "line 1 is not a report (json: cannot unmarshal"},
	} {
		_, err := Read(strings.NewReader(c.text))
		require.ErrorContains(t, err, c.want, name)
		if name != "too long" {
			require.ErrorIs(t, err, stepvan.ErrInvalid, name)
		}
	}
}

// What has been read can be compared with itself.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"workload":"echo","van":"tcp","p50_us":3,"samples":{"p50_us":[1,2,3],"rate":[4]}}`))
	f.Add([]byte(`{"workload":"x","van":"y","samples":{"p50_us":[-1,0,1e308,1e-308]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		reports, err := Read(bytes.NewReader(text))
		if err != nil {
			require.Empty(t, reports)
			return
		}
		s := Series{Name: "a", Reports: reports}
		require.NoError(t, Write(&bytes.Buffer{}, s, s))
	})
}

// A figure that no report has gets no table.
func TestFiguresOfSomeMeasurements(t *testing.T) {
	before, after := series("a", 1), series("b", 1)
	require.NotContains(t, text(t, before, after), "waiting")
	after.Reports[0].Details.Samples.WaitingCPU = []float64{0.25, 0.5, 0.125}
	require.Regexp(t, `(?m)^waiting +a +b +delta\s+tcp echo 1w1s 8B/8B +- +25% ± `, text(t, before, after))
}
