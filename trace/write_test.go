package trace

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// view is what a viewer sees of a file.
type view struct {
	Events []viewEvent `json:"traceEvents"`
	Unit   string      `json:"displayTimeUnit"`
	Other  other       `json:"otherData"`
}

type viewEvent struct {
	Name, Cat, Ph string
	TS, Dur       json.Number
	Pid, Tid      int
	Args          map[string]any
}

func parseView(t *testing.T, b []byte) view {
	t.Helper()
	var v view
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	require.NoError(t, d.Decode(&v), "%s", b)
	require.False(t, d.More())
	return v
}

// ns reads a time independently of the code under test.
func ns(t *testing.T, n json.Number) int64 {
	t.Helper()
	var whole, part int64
	dot := bytes.IndexByte([]byte(n), '.')
	require.Equal(t, 4, len(n)-dot, "three places in %q", n)
	require.NoError(t, json.Unmarshal([]byte(n[:dot]), &whole))
	for _, c := range n[dot+1:] {
		part = part*10 + int64(c-'0')
	}
	return whole*1000 + part
}

// checkNesting fails unless the slices of every thread lie within or beside each other, as viewers demand.
func checkNesting(t *testing.T, v view) {
	t.Helper()
	type thread struct{ pid, tid int }
	type interval struct{ begin, end int64 }
	threads := map[thread][]interval{}
	for _, e := range v.Events {
		if e.Ph != "X" {
			continue
		}
		begin := ns(t, e.TS)
		at := thread{e.Pid, e.Tid}
		threads[at] = append(threads[at], interval{begin, begin + ns(t, e.Dur)})
	}
	for at, all := range threads {
		var open []interval
		ordered := slices.IsSortedFunc(all, func(a, b interval) int { return cmp.Compare(a.begin, b.begin) })
		require.True(t, ordered, "thread %v is not in order of time", at)
		for _, i := range all {
			for len(open) > 0 && open[len(open)-1].end <= i.begin && i.end > open[len(open)-1].end {
				open = open[:len(open)-1]
			}
			if len(open) > 0 {
				require.LessOrEqual(t, i.end, open[len(open)-1].end, "thread %v: %v crosses %v", at, i, open[len(open)-1])
			}
			open = append(open, i)
		}
	}
}

func written(t *testing.T, processes ...Process) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, WriteJSON(&b, processes))
	return b.Bytes()
}

func TestSlicesOfARequest(t *testing.T) {
	e := Entry{Stamps: exchange(1_700_000_000_123_456_789), Label: "layer 3", RequestID: 7, Key: 0x1_0000, Worker: 1, Server: 2, BytesOut: 10, BytesBack: 20}
	v := parseView(t, written(t, Process{Name: "worker 1", Entries: []Entry{e}}))
	checkNesting(t, v)
	require.Equal(t, "1700000000123456789", v.Other.Origin)

	type slice struct {
		name       string
		begin, len int64
	}
	var got []slice
	for _, s := range v.Events {
		if s.Ph == "X" {
			got = append(got, slice{s.Name, ns(t, s.TS), ns(t, s.Dur)})
		}
	}
	// 600 between sending and the answer, of which 325 in the server.
	require.Equal(t, []slice{
		{"layer 3", 0, 613},
		{"send", 0, 10},
		{"network", 10, 137},
		{"server", 147, 325},
		{"queue", 147, 20},
		{"compute", 167, 300},
		{"respond", 467, 5},
		{"network", 472, 138},
		{"back", 610, 3},
	}, got)

	names := map[string]any{}
	for _, m := range v.Events {
		if m.Ph == "M" {
			names[m.Name] = m.Args["name"]
		}
		if m.Name == "layer 3" {
			require.Equal(t, map[string]any{
				"request": "0x7", "key": "0x10000", "worker": json.Number("1"), "server": json.Number("2"),
				"bytes_out": json.Number("10"), "bytes_back": json.Number("20"), "network": "275ns", "note": centred,
			}, m.Args)
		}
	}
	require.Equal(t, "worker 1", names["process_name"])
	require.Equal(t, "server 2", names["thread_name"])
}

func TestServerTrackIsPlacedByItsOffset(t *testing.T) {
	const hour = 3_600_000_000_000
	e := Entry{Stamps: exchange(5 * hour), Label: "layer 0"}
	served := e
	for _, i := range []int{RequestStart, RequestPostSend, ResponsePostRecv, ResponseProcess} {
		served.Stamps[i] = 0
	}
	v := parseView(t, written(t,
		Process{Name: "worker 0", Entries: []Entry{e}},
		Process{Name: "server 0", Offset: -hour, Entries: []Entry{served}}))
	for _, s := range v.Events {
		if s.Cat == "serve" && s.Name == "layer 0" {
			require.EqualValues(t, 100, ns(t, s.TS))
			require.EqualValues(t, 325, ns(t, s.Dur))
			require.Equal(t, 2, s.Pid)
			return
		}
	}
	t.Fatal("the server's slice is missing")
}

func TestEntriesWithoutStampsAreLeftOut(t *testing.T) {
	half := Entry{Stamps: Stamps{RequestStart: 5, RequestPostSend: 6, RequestPostRecv: 7}}
	v := parseView(t, written(t, Process{Name: "worker 0", Entries: []Entry{half}}))
	for _, e := range v.Events {
		require.Equal(t, "M", e.Ph)
	}
}

// Whatever the stamps, overlapping or out of order, the slices of the file nest.
func TestAnyStampsNest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var p, q Process
		for n := range uint64(40) {
			e := Entry{RequestID: n, Server: random.Int32N(3), Worker: random.Int32N(3)}
			for i := range e.Stamps {
				e.Stamps[i] = 1 + random.Int64N(3000)
			}
			p.Entries = append(p.Entries, e)
			e.Stamps[RequestStart] = 0
			q.Entries = append(q.Entries, e)
		}
		checkNesting(t, parseView(t, written(t, p, q)))
	}
}

func TestLanesAreAsManyAsRequestsInFlight(t *testing.T) {
	at := func(begin, end int64) Entry {
		return Entry{Stamps: Stamps{RequestStart: begin, RequestPostSend: begin, ResponsePostRecv: end, ResponseProcess: end}}
	}
	all := lanes([]Entry{at(10, 40), at(20, 50), at(30, 60), at(40, 70), at(61, 80)})
	require.Len(t, all, 3)
	require.Equal(t, "server 0", all[0].name())
	require.Equal(t, "server 0, in flight 3", all[2].name())
	for i, want := range []int{2, 2, 1} {
		require.Len(t, all[i].entries, want)
	}
}

type failing struct{}

var errFull = errors.New("disk full")

func (failing) Write([]byte) (int, error) { return 0, errFull }

func TestWriteErrorsAreReturned(t *testing.T) {
	require.ErrorIs(t, WriteJSON(failing{}, nil), errFull)
	require.ErrorIs(t, Merge(failing{}, bytes.NewReader(written(t))), errFull)
	require.ErrorIs(t, new(Summary).Table(failing{}), errFull)
}
