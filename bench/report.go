package bench

import (
	"encoding/json"
	"io"
	"math"
)

// Report is the result of a measurement, with times in us. Its JSON is one line. The first twenty
// fields, to cpu_per_op_us, keep their names and their order.
type Report struct {
	Workload  Workload `json:"workload"`
	Van       Van      `json:"van"`
	Workers   int      `json:"workers"`
	Servers   int      `json:"servers"`
	PushBytes int64    `json:"push_bytes"` // from a worker to each server
	PullBytes int64    `json:"pull_bytes"` // from each server
	Inflight  int      `json:"inflight"`
	Progress  string   `json:"progress"`

	P50  float64 `json:"p50_us"` // of an exchange with all servers; afd3: of a layer; median of the rounds
	P90  float64 `json:"p90_us"` // this and the others: of all rounds together
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Max  float64 `json:"max_us"`
	Rate float64 `json:"rate"` // exchanges per second, all workers together; median of the rounds
	Gbps float64 `json:"gbps"` // payload in both directions, all workers and servers together

	Limit      string  `json:"limit"`         // what the limit is
	LimitP50   float64 `json:"limit_p50_us"`  // median over rounds of the limit's median; one exchange at a time
	Ratio      float64 `json:"ratio"`         // median over rounds of the exchange's median by the limit's; incast: of the costs
	Allocs     float64 `json:"allocs_per_op"` // of Go; 0 of nodes in Python, where they are not counted
	CPUPerOpUS float64 `json:"cpu_per_op_us"` // of all processes, waiting included; median of the rounds

	Nodes    Nodes   `json:"nodes,omitempty"`      // "" is go; the processes of a peer are not nodes of stepvan
	Over     float64 `json:"over_go_us,omitempty"` // what p50 is above that of the same between Go nodes; median of the rounds
	InPlace  bool    `json:"in_place,omitempty"`
	Together bool    `json:"one_process,omitempty"` // all nodes in one process, with another van than mem
	Pin      int     `json:"pin,omitempty"`
	Bulk     int64   `json:"bulk_bytes,omitempty"`
	Compute  float64 `json:"compute_us,omitempty"`
	Memcpy   float64 `json:"memcpy_us,omitempty"` // one copy of the bytes of both directions, in one thread
	Memory   float64 `json:"memcpy_gbps,omitempty"`
	P50Range Range   `json:"p50_range_us"` // of the middle half of the rounds
	Ratios   Range   `json:"ratio_range"`

	Curve   Curve   `json:"percentiles"`
	Samples Samples `json:"samples"`
	Machine string  `json:"machine"`
}

// digits is the number of decimals of times in reports.
const digits = 3

func (c *coordinator) report() *Report {
	o, all := &c.opts, c.rounds
	r := newReport(o, c.measured)
	r.setRounds(Samples{
		P50:  perRoundFigures(all, func(r round) float64 { return r.p50 }),
		P99:  perRoundFigures(all, func(r round) float64 { return r.p99 }),
		Rate: perRoundFigures(all, func(r round) float64 { return 1e6 / r.elapsed }),
		CPU:  perRoundFigures(all, func(r round) float64 { return r.cpu }),
	})
	r.Allocs = rounded(float64(c.allocs)/float64(c.exchanges), digits)
	if o.limit().bare() {
		r.compareWith(perRoundFigures(all, func(r round) float64 { return r.limit }), perRoundFigures(all, func(r round) float64 { return r.p50 / r.limit }))
		r.Curve.Limit, r.Curve.LimitCount = c.limit.curve(o.limit().from), c.limit.count()
		r.Memcpy = rounded(median(perRoundFigures(all, func(r round) float64 { return r.memcpy })), digits)
		if r.Memcpy > 0 {
			r.Memory = rounded(float64(c.limitBytes())*8/r.Memcpy/1e3, digits)
		}
	}
	return r
}

func (c *coordinator) limitBytes() int64 {
	s := c.opts.limit().spec()
	return s.Push + s.Pull
}

func newReport(o *Options, l latencies) *Report {
	r := &Report{
		Workload: o.Workload, Van: o.Van, Workers: o.Workers, Servers: o.Servers,
		PushBytes: int64(o.Push), PullBytes: int64(o.Pull), Inflight: o.Inflight, Progress: o.Progress,
		P50: l.micros(50), P90: l.micros(90), P99: l.micros(99), P999: l.micros(99.9), Max: l.micros(100),
		Limit: o.limit().name(), InPlace: o.InPlace, Together: o.Together && o.Van != Mem, Pin: o.Pin, Bulk: int64(o.Bulk),
		Compute: float64(o.Compute.Nanoseconds()) / 1e3,
		Curve:   Curve{Percent: levels, Latency: l.curve(nil), Count: l.count()}, Machine: machine(),
	}
	if o.Nodes.Python() {
		r.Nodes = o.Nodes
	}
	if o.Workload == Barrier {
		r.PushBytes, r.PullBytes = 0, 0
	}
	return r
}

// setRounds sets the figures that come from those of the rounds.
func (r *Report) setRounds(s Samples) {
	r.Samples = s
	r.P50, r.P50Range = rounded(median(s.P50), digits), middleHalf(s.P50)
	r.Rate = rounded(median(s.Rate), 1)
	bytes := float64(r.PushBytes+r.PullBytes) * float64(r.Servers)
	r.Gbps = rounded(r.Rate*bytes*8/1e9, digits)
	r.CPUPerOpUS = rounded(median(s.CPU), digits)
}

// compareWith compares with a limit, round by round.
func (r *Report) compareWith(limits, ratios []float64) {
	r.Samples.Limit, r.Samples.Ratio = limits, ratios
	r.LimitP50 = rounded(median(limits), digits)
	r.Ratio, r.Ratios = rounded(median(ratios), digits), middleHalf(ratios)
}

// rounded keeps a number of decimals. It turns infinity and NaN into 0.
func rounded(v float64, digits int) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	unit := math.Pow10(digits)
	return math.Round(v*unit) / unit
}

// WriteJSON writes the report as one line.
func (r *Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }
