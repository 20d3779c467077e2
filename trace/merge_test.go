package trace

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestMergeEqualsWritingTogether(t *testing.T) {
	worker := Process{Name: "worker 0", Entries: []Entry{{Stamps: exchange(1_700_000_000_000_002_000), Label: "b"}}}
	early := Process{Name: "worker 1", Entries: []Entry{{Stamps: exchange(1_700_000_000_000_000_001), Label: "a"}}}
	idle := Process{Name: "worker 2"}

	var got bytes.Buffer
	require.NoError(t, Merge(&got,
		bytes.NewReader(written(t, worker)), bytes.NewReader(written(t, idle)), bytes.NewReader(written(t, early, worker))))
	require.JSONEq(t, string(written(t, worker, idle, early, worker)), got.String())
	checkNesting(t, parseView(t, got.Bytes()))
}

func TestMergeOfNothing(t *testing.T) {
	var got bytes.Buffer
	require.NoError(t, Merge(&got))
	require.JSONEq(t, string(written(t)), got.String())
}

func TestMergeRefusesWhatIsNoTrace(t *testing.T) {
	const head, tail = `{"traceEvents":[`, `],"otherData":{"format":"stepvan-trace","origin_ns":"5"}}`
	good := string(written(t))
	for name, c := range map[string]struct{ text, want string }{
		"empty":           {"", "not a trace"},
		"not JSON":        {"hello", "not a trace"},
		"cut off":         {good[:len(good)-5], "not a trace"},
		"another tool's":  {`{"traceEvents":[]}`, "otherData.format"},
		"no origin":       {`{"otherData":{"format":"stepvan-trace"}}`, "origin_ns"},
		"negative origin": {`{"otherData":{"format":"stepvan-trace","origin_ns":"-5"}}`, "origin_ns"},
		"strange phase":   {head + `{"ph":"B","ts":1}` + tail, "phase"},
		"no length":       {head + `{"ph":"X","ts":1}` + tail, "without a length"},
		"negative time":   {head + `{"ph":"X","ts":-1,"dur":1}` + tail, "decimal number"},
		"exponent":        {head + `{"ph":"X","ts":1e3,"dur":1}` + tail, "decimal number"},
		"too fine":        {head + `{"ph":"X","ts":1.0001,"dur":1}` + tail, "decimal number"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Merge(io.Discard, strings.NewReader(good), strings.NewReader(c.text))
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			require.ErrorContains(t, err, "file 2 of 2")
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestMergeRefusesTimesOutOfRange(t *testing.T) {
	far := `{"traceEvents":[{"ph":"X","ts":9223372036854774.0,"dur":1}],"otherData":{"format":"stepvan-trace","origin_ns":"9000000000000000000"}}`
	near := `{"traceEvents":[{"ph":"X","ts":0,"dur":1}],"otherData":{"format":"stepvan-trace","origin_ns":"1"}}`
	err := Merge(io.Discard, strings.NewReader(near), strings.NewReader(far))
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "out of range")
}

func TestMicros(t *testing.T) {
	for ns, text := range map[int64]string{0: "0.000", 1: "0.001", 12: "0.012", 999: "0.999", 1000: "1.000", 1_700_000_000_123_456_789: "1700000000123456.789"} {
		b, err := micros(ns).MarshalJSON()
		require.NoError(t, err)
		require.Equal(t, text, string(b))
		var back micros
		require.NoError(t, back.UnmarshalJSON(b))
		require.EqualValues(t, ns, back)
	}
	for _, text := range []string{"", ".", "-1", "+1", "1.-1", "1.2345", "x", "9223372036854775807"} {
		require.Error(t, new(micros).UnmarshalJSON([]byte(text)), "%q", text)
	}
}

// Merge must answer any bytes with an error or a file that it can read again.
func FuzzMerge(f *testing.F) {
	whole, err := io.ReadAll(strings.NewReader(`{"traceEvents":[{"name":"a","ph":"X","ts":1.5,"dur":2,"pid":1,"tid":1,"args":{"x":1}},{"name":"process_name","ph":"M","pid":1}],"otherData":{"format":"stepvan-trace","origin_ns":"77"}}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var once, twice bytes.Buffer
		if err := Merge(&once, bytes.NewReader(b)); err != nil {
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			return
		}
		require.NoError(t, Merge(&twice, bytes.NewReader(once.Bytes())))
		require.Equal(t, once.String(), twice.String())
	})
}
