package trace

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuantilesAreExact(t *testing.T) {
	var hundred []time.Duration
	for i := range time.Duration(100) {
		hundred = append(hundred, 100-i)
	}
	for name, c := range map[string]struct {
		in   []time.Duration
		want Quantiles
	}{
		"none":    {nil, Quantiles{}},
		"one":     {[]time.Duration{7}, Quantiles{7, 7, 7}},
		"two":     {[]time.Duration{9, 7}, Quantiles{7, 9, 9}},
		"hundred": {hundred, Quantiles{50, 99, 100}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, quantiles(c.in)) })
	}
}

func TestNaturalOrder(t *testing.T) {
	want := []string{"", "layer", "layer 0", "layer 2", "layer 02", "layer 10", "layer 10 b", "layer x", "m"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, natural)
	require.Equal(t, want, got)
}

func TestSummaryGroupsAndAddsUp(t *testing.T) {
	entries := []Entry{
		{Stamps: exchange(1000), Label: "layer 10", BytesOut: 1, BytesBack: 2},
		{Stamps: exchange(5000), Label: "layer 9", BytesOut: 3, BytesBack: 4},
		{Stamps: Stamps{RequestStart: 1, RequestPostSend: 11, ResponsePostRecv: 51, ResponseProcess: 52}, Label: "layer 9"},
		{Stamps: Stamps{RequestStart: 1}, Label: "never finished"},
	}
	s := Summarize(entries, ByLabel)
	require.Len(t, s.Rows, 2)
	require.Equal(t, "layer 9", s.Rows[0].Label)
	require.Equal(t, 2, s.Rows[0].Count)
	require.Equal(t, Quantiles{P50: 51, P99: 613, Max: 613}, s.Rows[0].Total)
	require.Equal(t, Quantiles{P50: 40, P99: 275, Max: 275}, s.Rows[0].Network)
	require.Equal(t, 3, s.All.Count)
	require.EqualValues(t, 4, s.All.BytesOut)
	require.EqualValues(t, 6, s.All.BytesBack)

	byKey := Summarize(entries, func(*Entry) string { return "one" })
	require.Len(t, byKey.Rows, 1)
	require.Equal(t, 3, byKey.Rows[0].Count)
}

func TestTable(t *testing.T) {
	s := Summarize([]Entry{
		{Stamps: exchange(1000), Label: "layer 0"},
		{Stamps: exchange(9000), Label: "layer 1"},
	}, ByLabel)
	var b strings.Builder
	require.NoError(t, s.Table(&b))
	require.Equal(t, `
                 |              total |               send |            network |             server |               back
us         count |      p50       p99 |      p50       p99 |      p50       p99 |      p50       p99 |      p50       p99
layer 0        1 |      0.6       0.6 |      0.0       0.0 |      0.3       0.3 |      0.3       0.3 |      0.0       0.0
layer 1        1 |      0.6       0.6 |      0.0       0.0 |      0.3       0.3 |      0.3       0.3 |      0.0       0.0
all            2 |      0.6       0.6 |      0.0       0.0 |      0.3       0.3 |      0.3       0.3 |      0.0       0.0
`, "\n"+b.String())
}

func TestTableOfOneRowHasNoTotal(t *testing.T) {
	s := Summarize([]Entry{{Stamps: exchange(1000), Label: "echo"}}, ByLabel)
	var b strings.Builder
	require.NoError(t, s.Table(&b))
	require.Equal(t, 3, strings.Count(b.String(), "\n"))
}
