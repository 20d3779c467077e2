package bench

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stepvan/stepvan/bench/work"
)

// Each benchmark is one measurement of b.N exchanges with its limit; what it reports are
// the figures of the Report. ns/op is about the whole run, processes included.

func report(b *testing.B, o Options) {
	b.Helper()
	if o.Workload != Start {
		o.Rounds = min(10, max(1, b.N/100))
	}
	o.Count = b.N
	r, err := Run(b.Context(), options(b, o))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(r.P50, "p50-us")
	b.ReportMetric(r.P99, "p99-us")
	b.ReportMetric(r.LimitP50, "limit-us")
	b.ReportMetric(r.Ratio, "x-limit")
	b.ReportMetric(r.Allocs, "allocs/exchange")
	b.ReportMetric(r.CPUPerOpUS, "cpu-us/exchange")
}

// BenchmarkEcho is the exchange of 8 bytes: at most 1.5 times the limit over TCP, and 0 allocations.
func BenchmarkEcho(b *testing.B) {
	for _, v := range Vans {
		b.Run(string(v), func(b *testing.B) { report(b, Options{Van: v}) })
	}
}

// BenchmarkAFD is the exchange of one layer's activations: at most 1.2 times the limit over TCP.
func BenchmarkAFD(b *testing.B) {
	for _, v := range Vans {
		b.Run(string(v), func(b *testing.B) { report(b, Options{Workload: AFD, Van: v}) })
	}
}

// BenchmarkFreshAFD is the same between programs that write and read the activations.
func BenchmarkFreshAFD(b *testing.B) {
	for _, v := range Vans {
		b.Run(string(v), func(b *testing.B) { report(b, Options{Workload: AFD, Van: v, Work: work.Spec{Fresh: true}}) })
	}
}

// BenchmarkComputing shows what an echo takes above the time that the server computes.
func BenchmarkComputing(b *testing.B) {
	for _, v := range []Van{Shm, TCP} {
		for _, times := range slices.Concat(constants, variable) {
			b.Run(fmt.Sprintf("%s/%v", v, times), func(b *testing.B) { report(b, Options{Van: v, Work: work.Spec{Think: times}}) })
		}
	}
}

// BenchmarkEchoBesideBulk exchanges 8 bytes while the same two nodes move 1 GiB after 1 GiB. The
// heartbeats are on: a node whose signs of life did not pass within the second would be
// declared dead, and end the run.
func BenchmarkEchoBesideBulk(b *testing.B) {
	report(b, Options{Bulk: 1 << 30, Env: []string{"PS_HEARTBEAT_INTERVAL=100ms", "PS_HEARTBEAT_TIMEOUT=1s"}})
}

// BenchmarkEchoOnOneCore has all processes on one core: tens of microseconds, not milliseconds.
func BenchmarkEchoOnOneCore(b *testing.B) { report(b, Options{Cores: Cores{Pin: 1}}) }

// BenchmarkPipeline takes micro-batches through the layers of a split transformer.
func BenchmarkPipeline(b *testing.B) { report(b, Options{Workload: AFD3}) }

// BenchmarkWeights moves 256 MiB one way: at least 0.9 of the bare rate.
func BenchmarkWeights(b *testing.B) { report(b, Options{Workload: Weights}) }

// BenchmarkIncast is one server with 64 workers in one process: at most twice the cost of one worker.
func BenchmarkIncast(b *testing.B) {
	report(b, Options{Workload: Incast, Van: Mem, Workers: 64})
}

// BenchmarkStart starts and stops a worker and a server, with one exchange between: at most 300 ms.
func BenchmarkStart(b *testing.B) { report(b, Options{Workload: Start}) }
