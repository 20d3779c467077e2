package bench

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/bench/refit"
	"github.com/stepvan/stepvan/bench/work"
	"github.com/stepvan/stepvan/internal/launch"
	"github.com/stepvan/stepvan/internal/race"
)

func TestRuns(t *testing.T) {
	for name, o := range map[string]Options{
		"echo over tcp":           {Count: 200},
		"echo over unix":          {Van: Unix, Count: 200},
		"echo over shm":           {Van: Shm, Count: 200},
		"afd over shm":            {Workload: AFD, Van: Shm, Workers: 2, Servers: 2, Count: 20, Inflight: 3},
		"afd in place, shm":       {Workload: AFD, Van: Shm, InPlace: true, Count: 50, Inflight: 2},
		"afd in place, mem":       {Workload: AFD, Van: Mem, InPlace: true, Workers: 2, Count: 50},
		"afd in place, tcp":       {Workload: AFD, InPlace: true, Count: 20},
		"weights over shm":        {Workload: Weights, Van: Shm, Push: 16 << 20, Count: 3},
		"echo in one process":     {Van: Mem, Count: 200},
		"afd, two by two":         {Workload: AFD, Workers: 2, Servers: 2, Count: 20, Inflight: 3},
		"afd in one process":      {Workload: AFD, Van: Mem, Workers: 2, Servers: 2, Count: 20, Inflight: 3},
		"for a time":              {Duration: 50 * time.Millisecond, Rounds: 3, Inflight: 4, Progress: "park"},
		"beside a bulk of data":   {Count: 50, Bulk: 8 << 20},
		"on one core":             {Count: 200, Cores: Cores{Pin: 1}},
		"echo, computing, shm":    {Van: Shm, Work: computing(t, "20us"), Count: 50},
		"echo, computing, tcp":    {Work: computing(t, "90%1us-20us+10%50us"), Count: 50},
		"echo, computing, park":   {Work: computing(t, "20us"), Progress: "park", Count: 50},
		"echo, asleep, shm":       {Van: Shm, Work: asleep(t, "20us-50us"), Count: 50},
		"echo, asleep, tcp":       {Work: asleep(t, "20us"), Progress: "park", Count: 50},
		"echo, computing, mem":    {Van: Mem, Work: computing(t, "20us"), Count: 50},
		"afd, computing":          {Workload: AFD, Van: Shm, Work: computing(t, "20us"), Count: 20},
		"afd, computing in place": {Workload: AFD, Van: Shm, Work: computing(t, "20us"), InPlace: true, Count: 20},
		"afd, fresh, shm":         {Workload: AFD, Van: Shm, Work: work.Spec{Fresh: true}, Workers: 2, Servers: 2, Inflight: 2, Count: 20},
		"afd, fresh, tcp":         {Workload: AFD, Work: work.Spec{Fresh: true}, Count: 20},
		"afd, fresh, in place":    {Workload: AFD, Van: Shm, Work: work.Spec{Fresh: true}, InPlace: true, Count: 20},
		"afd, fresh, mem":         {Workload: AFD, Van: Mem, Work: work.Spec{Fresh: true}, InPlace: true, Count: 20},
		"echo, fresh, shm":        {Van: Shm, Work: work.Spec{Fresh: true}, Inflight: 3, Count: 50},
		"echo, fresh, tcp":        {Work: work.Spec{Fresh: true, Think: computing(t, "20us").Think}, Count: 50},
		"starts":                  {Workload: Start, Count: 2},
		"a pipeline":              {Workload: AFD3, Push: 4096, Count: 20},
		"incast":                  {Workload: Incast, Workers: 3, Count: 50},
		"incast in one process":   {Workload: Incast, Workers: 5, Processes: Processes{Together: true}, Count: 50},
		"incast of the mem van":   {Workload: Incast, Workers: 5, Van: Mem, Count: 50, Push: 4096},
		"fanout":                  {Workload: Fanout, Servers: 3, Van: Unix, Count: 20},
		"weights":                 {Workload: Weights, Push: 16 << 20, Count: 3},
		"weights the other way":   {Workload: Weights, Push: 8, Pull: 16 << 20, Count: 3, Van: Mem},
		"barriers":                {Workload: Barrier, Workers: 2, Servers: 2, Count: 20},
		"barriers in a process":   {Workload: Barrier, Workers: 2, Servers: 2, Count: 20, Van: Mem},
		"unix in one process":     {Van: Unix, Processes: Processes{Together: true}, Count: 50},
		"p2p over tcp":            {Workload: P2P, Count: 100},
		"p2p over unix":           {Workload: P2P, Van: Unix, Push: 100 << 10, Count: 30},
		"p2p over shm":            {Workload: P2P, Van: Shm, Push: 1 << 20, Count: 50},
		"p2p in one process":      {Workload: P2P, Van: Mem, Count: 50},
		"put over tcp":            {Workload: Put, Push: 100 << 10, Count: 50},
		"put over unix":           {Workload: Put, Van: Unix, Count: 50},
		"put over shm":            {Workload: Put, Van: Shm, Push: 100 << 10, Count: 50},
		"put in one process":      {Workload: Put, Van: Mem, Count: 50},
		"refit over shm":          {Workload: Refit, Van: Shm, Refit: refit.Spec{Bytes: 4 << 20}, Count: 5},
		"refit over tcp":          {Workload: Refit, Refit: refit.Spec{Bytes: 4 << 20, Dim: 1, Row: 256}, Count: 5},
		"refit over unix, a pair": {Workload: Refit, Van: Unix, Refit: refit.Spec{Bytes: 4 << 20, Dim: 1, Pair: true}, Count: 5},
		"refit, one side shared":  {Workload: Refit, Van: Shm, Refit: refit.Spec{Bytes: 4 << 20, Memory: refit.One}, Count: 5},
		"refit, sources shared":   {Workload: Refit, Van: Shm, Refit: refit.Spec{Bytes: 4 << 20, Memory: refit.Sources}, Count: 5},
		"refit, private memory":   {Workload: Refit, Van: Shm, Refit: refit.Spec{Bytes: 4 << 20, Memory: refit.Torch}, Count: 5},
		"refit of small moves":    {Workload: Refit, Van: Shm, Refit: refit.Spec{Moves: 800}, Count: 20},
		"particles apart, shm":    {Workload: Particles, Van: Shm, Processes: Processes{Apart: true}, Count: 50},
		"bus over shm":            {Workload: Bus, Van: Shm, Count: 50},
		"bus over tcp":            {Workload: Bus, Push: 100 << 10, Count: 30},
		"bus in one process":      {Workload: Bus, Van: Mem, Count: 50},
		"bus, apart, shm":         {Workload: Bus, Van: Shm, Processes: Processes{Apart: true}, Count: 50},
		"bus, apart, unix":        {Workload: Bus, Van: Unix, Processes: Processes{Apart: true}, Count: 30},
		"as if in Python":         {Nodes: NumpyNodes, Van: Shm, Count: 50},
	} {
		peers := o.Workload == P2P || o.Workload == Put || o.Workload == Refit
		if race.Enabled && !peers && (o.Van == Mem || o.Van == Unix || o.Work.Any()) {
			continue // the others have the same goroutines
		}
		t.Run(name, func(t *testing.T) {
			r, err := Run(t.Context(), options(t, o))
			require.NoError(t, err)
			require.Positive(t, r.P50)
			require.GreaterOrEqual(t, r.P99, r.P50)
			require.Positive(t, r.LimitP50)
			require.NotEmpty(t, r.Details.Samples.Ratio)
			require.Positive(t, slices.Max(r.Details.Samples.Ratio), "a busy machine may round the median to 0")
			require.NotEmpty(t, r.Details.Samples.P50)
			require.Len(t, r.Details.Samples.Ratio, len(r.Details.Samples.P50))
			require.Len(t, r.Details.Curve.Limit, len(r.Details.Curve.Percent))
			if messages := map[refit.Memory]float64{"": 2, refit.Sources: 2, refit.One: 3}[o.Refit.Memory]; o.Workload == Refit && o.Van == Shm && messages > 0 {
				require.InDelta(t, messages, r.Details.Messages, 0, "for each pair and run")
			}
		})
	}
}

// An idle node has processor time, and no limit.
func TestIdleNodes(t *testing.T) {
	r, err := Run(t.Context(), options(t, Options{Workload: Idle, Van: Shm, Count: 1}))
	require.NoError(t, err)
	require.Equal(t, "shm idle 1w1s", r.Name())
	require.Empty(t, r.Limit)
	require.Positive(t, r.Details.Waiting)
	require.Equal(t, int64(1), r.Details.Curve.Count)
}

// Messages within a process have no limit.
func TestParticlesOfOnePeer(t *testing.T) {
	r, err := Run(t.Context(), options(t, Options{Workload: Particles, Van: Shm, Count: 50}))
	require.NoError(t, err)
	require.Equal(t, "shm particles 2p 8B/8B", r.Name())
	require.Positive(t, r.P50)
	require.Empty(t, r.Limit)
}

// Each worker exchanges with a server of its own.
func TestPairs(t *testing.T) {
	for name, o := range map[string]Options{
		"two":              {Van: Shm, Count: 50},
		"three":            {Workers: 3, Count: 30, Inflight: 2},
		"servers compute":  {Work: computing(t, "50us"), Count: 30},
		"fresh, and large": {Van: Shm, Work: work.Spec{Fresh: true}, Push: 1 << 20, Count: 10},
	} {
		t.Run(name, func(t *testing.T) {
			o.Workload = Pairs
			r, err := Run(t.Context(), options(t, o))
			require.NoError(t, err)
			require.Positive(t, r.P50)
			require.Empty(t, r.Limit)
			require.Equal(t, max(o.Workers, 2), r.Workers)
			require.Equal(t, r.Workers, r.Servers)
		})
	}
}

// A batch has no limit.
func TestBatches(t *testing.T) {
	for name, o := range map[string]Options{
		"processes":   {Van: Shm, Workers: 2, Inflight: 4, Count: 20, Progress: "auto"},
		"one process": {Van: Mem, Workers: 3, Inflight: 4, Count: 21, Push: 64},
	} {
		t.Run(name, func(t *testing.T) {
			o.Workload = Batch
			r, err := Run(t.Context(), options(t, o))
			require.NoError(t, err)
			require.Positive(t, r.P50)
			require.Empty(t, r.Limit)
			require.Zero(t, r.Ratio)
			require.GreaterOrEqual(t, r.Details.Curve.Count, int64(o.Count))
		})
	}
}

// Nodes in Python are compared with nodes in Go of the same run, or with some that are added only for that.
func TestPythonIsComparedWithGo(t *testing.T) {
	for name, others := range map[string][]Nodes{"among others": {GoNodes, TorchNodes}, "alone": nil} {
		t.Run(name, func(t *testing.T) {
			all := []Options{options(t, Options{Count: 30, Rounds: 3, Nodes: NumpyNodes})}
			for _, n := range others {
				all = append(all, options(t, Options{Count: 30, Rounds: 3, Nodes: n}))
			}
			runs, err := newRuns(all)
			require.NoError(t, err)
			require.Len(t, runs, max(len(all), 2))
			got, err := RunTogether(t.Context(), all...)
			require.NoError(t, err)
			require.Len(t, got, len(all))
			r := got[0].Report
			require.NoError(t, got[0].Err)
			require.Equal(t, NumpyNodes, r.Variant.Nodes)
			require.Equal(t, limitGo, r.Limit)
			for i := range r.Details.Samples.P50 {
				require.InDelta(t, r.Details.Samples.P50[i]/r.Details.Samples.Limit[i], r.Details.Samples.Ratio[i], 1e-3)
			}
			require.Equal(t, "tcp echo 1w1s numpy 8B/8B", r.Name())
			if len(others) > 0 {
				require.Equal(t, got[1].Report.Details.Samples.P50, r.Details.Samples.Limit)
				require.Equal(t, "socket ping-pong", got[1].Report.Limit)
			}
		})
	}
}

// An interpreter without package stepvan, or NIXL, gives an error that says how to install it.
func TestAnInterpreterWithoutThePackage(t *testing.T) {
	for name, c := range map[string]struct {
		nodes     Nodes
		says      string
		want      error
		installed string
	}{
		"stepvan": {TorchNodes, "x: (ModuleNotFoundError: No module named 'stepvan')", errNoPackage, "pip install ./python"},
		"old":     {NumpyNodes, "/usr/bin/python3: No module named stepvan._bench", errNoPackage, "pip install ./python"},
		"NIXL":    {NixlNodes, "x: --peer nixl needs NIXL, which is not part of stepvan: (No module named 'nixl')", errNoNixl, "pip install --no-deps nixl-cu12==1.5.1"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, Options{Count: 1, Nodes: c.nodes})
			o.Python = []string{"/bin/sh", "-c", "echo \"" + c.says + "\" >&2; exit 1"}
			_, err := Run(t.Context(), o)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.installed)
		})
	}
}

func TestASignalEndsARun(t *testing.T) {
	for _, v := range []Van{TCP, Mem} {
		t.Run(string(v), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			signals := make(chan os.Signal, 1)
			signals <- unix.SIGINT
			_, err := Run(t.Context(), options(t, Options{Van: v, Duration: time.Hour, Console: Console{Signals: signals}}))
			var interrupted *launch.Interrupted
			require.ErrorAs(t, err, &interrupted)
			require.Equal(t, unix.SIGINT, interrupted.Signal)
		})
	}
}

func TestTheContextEndsARun(t *testing.T) {
	why := errors.New("enough")
	for _, v := range []Van{TCP, Mem} {
		t.Run(string(v), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(why)
			_, err := Run(ctx, options(t, Options{Van: v, Duration: time.Hour}))
			require.ErrorIs(t, err, why)
		})
	}
}

// A process that ends is named, with what it said.
func TestAProcessThatFails(t *testing.T) {
	o := options(t, Options{Count: 1})
	o.Node = []string{"/bin/sh", "-c", "echo no luck >&2; exit 3"}
	_, err := Run(t.Context(), o)
	var failure *launch.Failure
	require.ErrorAs(t, err, &failure)
	require.Equal(t, 3, failure.Status)
	require.Contains(t, failure.Stderr, "no luck")
}

// Measurements of one run do not disturb each other, and each has an outcome of its own.
func TestRunsTogether(t *testing.T) {
	bad := options(t, Options{Count: 10})
	bad.Node = []string{"/bin/sh", "-c", "exit 3"}
	got, err := RunTogether(t.Context(), options(t, Options{Count: 30, Rounds: 3}), bad, options(t, Options{Van: Mem, Workload: Incast, Workers: 2, Count: 30}))
	require.NoError(t, err)
	require.Len(t, got, 3)
	require.NoError(t, got[0].Err)
	require.Equal(t, TCP, got[0].Report.Van)
	require.Len(t, got[0].Report.Details.Samples.P50, 3)
	var failure *launch.Failure
	require.ErrorAs(t, got[1].Err, &failure)
	require.Nil(t, got[1].Report)
	require.NoError(t, got[2].Err)
	require.Equal(t, limitOneWorker, got[2].Report.Limit)
	require.Equal(t, 2, got[2].Report.Workers)
}

func TestASignalEndsAllThatRunTogether(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	signals := make(chan os.Signal, 1)
	signals <- unix.SIGTERM
	hour := Options{Duration: time.Hour, Console: Console{Signals: signals}}
	mem := hour
	mem.Van = Mem
	_, err := RunTogether(t.Context(), options(t, hour), options(t, mem))
	var interrupted *launch.Interrupted
	require.ErrorAs(t, err, &interrupted)
}

func TestAPlan(t *testing.T) {
	plan, err := Matrix{Base: Options{Count: 5}, Vans: []Van{Mem}, Pushes: []Size{8, 64}}.Plan()
	require.NoError(t, err)
	var begun []string
	done := 0
	got, err := plan.Run(t.Context(), Watch{
		Begin: func(names []string, before, all int) {
			begun = append(begun, names...)
			require.Equal(t, []int{len(begun) - 1, 2}, []int{before, all})
		},
		Done: func(Outcome) { done++ },
	})
	require.NoError(t, err)
	require.Equal(t, []string{"mem echo 1w1s 8B/8B", "mem echo 1w1s 64B/64B"}, begun)
	require.Equal(t, 2, done)
	require.EqualValues(t, 64, got[1].Report.PushBytes)
}

func TestAPlanWithMistakesRunsNothing(t *testing.T) {
	plan := Plan{{{Van: Mem}}, {{Van: Mem, Rounds: -1}, {Van: Mem, Rounds: -1}, {Van: "x", Node: []string{"x"}}}}
	_, err := plan.Run(t.Context(), Watch{Begin: func([]string, int, int) { t.Error("it runs") }})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.Equal(t, 1, strings.Count(err.Error(), "--rounds"), "once: %v", err)
	require.ErrorContains(t, err, "--van")
}

// computing is the work of a server that computes before it answers.
func computing(t *testing.T, text string) work.Spec {
	t.Helper()
	times, err := work.ParseTimes(text)
	require.NoError(t, err)
	return work.Spec{Think: times}
}

// asleep is the work of a server that sleeps before it answers.
func asleep(t *testing.T, text string) work.Spec {
	t.Helper()
	s := computing(t, text)
	s.Sleep = true
	return s
}

// The times of exchanges, and those of their limit, do not contain the computing.
func TestTheTimesAreWithoutTheComputing(t *testing.T) {
	const thinking = 50 * time.Millisecond
	r, err := Run(t.Context(), options(t, Options{Van: Shm, Work: computing(t, thinking.String()), Count: 4, Rounds: 2}))
	require.NoError(t, err)
	require.Equal(t, "shm echo 1w1s 8B/8B think 50ms", r.Name())
	require.Less(t, r.Details.Curve.Latency[0], inMicros(thinking), "the fastest exchange, above the computing")
	require.Less(t, r.Details.Curve.Limit[0], inMicros(thinking))
	require.Less(t, r.Rate, 1/thinking.Seconds(), "the rate is of the whole exchange")
	require.Positive(t, r.Details.Waiting)
	require.Len(t, r.Details.Samples.WaitingCPU, 2)
}
