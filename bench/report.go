package bench

import (
	"encoding/json"
	"io"
	"math"
)

// Report is the result of a measurement. Times are in us. It is written as one line of JSON.
type Report struct {
	Workload  Workload `json:"workload"`
	Van       Van      `json:"van"`
	Workers   int      `json:"workers"`
	Servers   int      `json:"servers"`
	PushBytes int64    `json:"push_bytes"` // from a worker to each server
	PullBytes int64    `json:"pull_bytes"` // from each server
	Inflight  int      `json:"inflight"`
	Progress  string   `json:"progress"`

	P50  float64 `json:"p50_us"` // of an exchange with all servers
	P90  float64 `json:"p90_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Max  float64 `json:"max_us"`
	Rate float64 `json:"rate"` // exchanges per second, all workers together
	Gbps float64 `json:"gbps"` // payload in both directions, all workers and servers together

	Limit      string  `json:"limit"`        // what the limit is
	LimitP50   float64 `json:"limit_p50_us"` // median over rounds of the limit's median; one worker, one server, one exchange at a time
	Ratio      float64 `json:"ratio"`        // median over rounds of the exchange's median by the limit's
	Allocs     float64 `json:"allocs_per_op"`
	CPUPerOpUS float64 `json:"cpu_per_op_us"` // of all processes, waiting included
}

// Names of limits.
const (
	limitTCP     = "socket ping-pong"
	limitUnix    = "unix socket ping-pong"
	limitCopy    = "memory copy"
	limitProcess = "bare processes"
)

func (c *conductor) report() *Report {
	o := &c.opts
	r := newReport(o, c.stack)
	bytes := float64(o.Push+o.Pull) * float64(o.Servers)
	n, seconds := float64(c.exchanges), c.elapsed.Seconds()
	r.Limit = map[Van]string{TCP: limitTCP, Unix: limitUnix, Mem: limitCopy}[o.Van]
	r.Rate = rounded(n/seconds, 1)
	r.Gbps = rounded(n*bytes*8/seconds/1e9, 3)
	r.LimitP50 = rounded(median(c.limits), 3)
	r.Ratio = rounded(median(c.ratios), 3)
	r.Allocs = rounded(float64(c.allocs)/n, 3)
	r.CPUPerOpUS = rounded(float64(c.cpu.Nanoseconds())/n/1e3, 3)
	return r
}

func newReport(o *Options, l latencies) *Report {
	return &Report{
		Workload: o.Workload, Van: o.Van, Workers: o.Workers, Servers: o.Servers,
		PushBytes: int64(o.Push), PullBytes: int64(o.Pull), Inflight: o.Inflight, Progress: o.Progress,
		P50: l.micros(50), P90: l.micros(90), P99: l.micros(99), P999: l.micros(99.9), Max: l.micros(100),
	}
}

// rounded keeps so many digits behind the point; what is no number becomes 0.
func rounded(v float64, digits int) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	unit := math.Pow10(digits)
	return math.Round(v*unit) / unit
}

// WriteJSON writes the report as one line.
func (r *Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }
