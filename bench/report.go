package bench

import (
	"encoding/json"
	"io"
	"math"
	"slices"

	"github.com/stepvan/stepvan/bench/refit"
)

// Report is the result of a measurement, with times in us. Its JSON is one line: an object with the
// fields of all parts. The first twenty, to cpu_per_op_us, keep their names and their order.
type Report struct {
	Setup
	Figures
	Variant Variant
	Details Details
}

// Setup says what was measured.
type Setup struct {
	Workload  Workload `json:"workload"`
	Van       Van      `json:"van"`
	Workers   int      `json:"workers"`
	Servers   int      `json:"servers"`
	PushBytes int64    `json:"push_bytes"` // from a worker to each server
	PullBytes int64    `json:"pull_bytes"` // from each server
	Inflight  int      `json:"inflight"`
	Progress  string   `json:"progress"`
}

// Figures are the results.
type Figures struct {
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
}

// Variant says how a measurement differs from the plain one of its setup. The zero value is plain.
type Variant struct {
	Nodes    Nodes   `json:"nodes,omitempty"` // "" is go; the processes of a peer are not nodes of stepvan
	InPlace  bool    `json:"in_place,omitempty"`
	Together bool    `json:"one_process,omitempty"` // all nodes in one process, with another van than mem
	Pin      int     `json:"pin,omitempty"`
	Bulk     int64   `json:"bulk_bytes,omitempty"`
	Compute  float64 `json:"compute_us,omitempty"`
	Think    string  `json:"think,omitempty"` // how long the server computes; the times are without it
	Sleep    string  `json:"sleep,omitempty"` // how long it sleeps; likewise
	Fresh    bool    `json:"fresh,omitempty"` // both sides write what they send and read what they get; the times are with it
	Quota    float64 `json:"quota,omitempty"` // cores whose time all processes share
	Busy     bool    `json:"busy,omitempty"`  // another program computes on every core

	Apart bool `json:"apart,omitempty"` // see Processes

	Refit *refit.Spec `json:"refit,omitempty"` // what moves; push_bytes is what each destination gets on average
}

// Details are further figures, and what the figures come from.
type Details struct {
	Over     float64 `json:"over_go_us,omitempty"`  // what p50 is above that of the same between Go nodes; median of the rounds
	Waiting  float64 `json:"waiting_cpu,omitempty"` // share of a core that a process uses while it waits: see package doc; median of the rounds
	Lost     float64 `json:"lost,omitempty"`        // share of its rate that the busy program loses beside the nodes; median of the rounds
	Memcpy   float64 `json:"memcpy_us,omitempty"`   // one copy of the bytes of both directions, in one thread
	Memory   float64 `json:"memcpy_gbps,omitempty"` // the rate of that copy
	P50Range Range   `json:"p50_range_us"`          // of the middle half of the rounds
	Ratios   Range   `json:"ratio_range"`
	Curve    Curve   `json:"percentiles"`
	Samples  Samples `json:"samples"`
	Machine  string  `json:"machine"`

	Throttled Throttled `json:"throttled,omitzero"` // medians of the rounds

	Beyond int64 `json:"beyond_bytes,omitempty"` // memory of all processes beyond their models, while these move
	Pairs  int   `json:"pairs,omitempty"`        // of a source and a destination

	Messages   float64 `json:"messages_per_pair,omitempty"`           // of both ends, in a run of resharding
	Acks       float64 `json:"acks_per_pair,omitempty"`               // likewise, acknowledgements that no message carried
	AllocsMost float64 `json:"allocs_of_a_process_per_run,omitempty"` // of the process of resharding that has most

	Above float64 `json:"above_limit_us,omitempty"` // bus: what p50 is above the limit; median of the rounds
}

// flat has the fields of all parts side by side.
func (r *Report) flat() any {
	return &struct {
		*Setup
		*Figures
		*Variant
		*Details
	}{&r.Setup, &r.Figures, &r.Variant, &r.Details}
}

// MarshalJSON writes the fields of all parts into one object.
func (r *Report) MarshalJSON() ([]byte, error) { return json.Marshal(r.flat()) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Report) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, r.flat()) }

// WriteJSON writes the report as one line.
func (r *Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// digits is the number of decimals of times in reports.
const digits = 3

// shareDigits is the number of decimals of shares of a core.
const shareDigits = 5

// newReport makes a report without figures.
func newReport(o *Options) *Report {
	r := &Report{
		Setup: Setup{
			Workload: o.Workload, Van: o.Van, Workers: o.Workers, Servers: o.Servers,
			PushBytes: int64(o.Push), PullBytes: int64(o.Pull), Inflight: o.Inflight, Progress: o.Progress,
		},
		Variant: Variant{
			InPlace: o.InPlace, Together: o.Processes.Together && o.Van != Mem, Pin: o.Cores.Pin,
			Bulk: int64(o.Bulk), Compute: inMicros(o.Compute), Fresh: o.Work.Fresh,
			Quota: o.Cores.Quota, Busy: o.Cores.Busy,
		},
	}
	switch {
	case len(o.Work.Think) == 0:
	case o.Work.Sleep:
		r.Variant.Sleep = o.Work.Think.String()
	default:
		r.Variant.Think = o.Work.Think.String()
	}
	r.Limit = o.limit().name()
	if o.Nodes.Python() {
		r.Variant.Nodes = o.Nodes
	}
	if o.Workload == Refit {
		r.Variant.Refit, r.PullBytes = &o.Refit, 0
	}
	if o.Workload == Bus {
		r.Variant.Apart, r.PullBytes = o.Processes.Apart, 0
	}
	if o.Workload == Particles {
		r.Variant.Apart = o.Processes.Apart
	}
	if o.Workload == Barrier || o.Workload == Idle {
		r.PushBytes, r.PullBytes = 0, 0
	}
	return r
}

// setFigures sets the figures of all rounds together, and the medians of the rounds.
func (r *Report) setFigures(all latencies, s Samples) {
	d := &r.Details
	d.Machine, d.Samples = machine(), s
	d.Curve.Percent, d.Curve.Latency, d.Curve.Count = levels, all.curve(nil), all.count()
	r.P90, r.P99, r.P999, r.Max = all.micros(90), all.micros(99), all.micros(99.9), all.micros(100)
	r.P50, d.P50Range = rounded(median(s.P50), digits), middleHalf(s.P50)
	r.Rate = rounded(median(s.Rate), 1)
	bytes := float64(r.PushBytes+r.PullBytes) * float64(r.Servers)
	r.Gbps = rounded(r.Rate*bytes*8/1e9, digits)
	r.CPUPerOpUS = rounded(median(s.CPU), digits)
	d.Waiting = rounded(median(s.WaitingCPU), shareDigits)
	d.Lost, d.Throttled = rounded(median(s.Lost), shareDigits), medianThrottled(s.Throttled)
	r.setLimit(s.Limit, s.Ratio, Curve{})
}

// setLimit sets the figures of the limit in each round, and its curve.
func (r *Report) setLimit(limits, ratios []float64, of Curve) {
	d := &r.Details
	d.Samples.Limit, d.Samples.Ratio = limits, ratios
	d.Curve.Limit, d.Curve.LimitCount = of.Latency, of.Count
	r.LimitP50 = rounded(median(limits), digits)
	r.Ratio, d.Ratios = rounded(median(ratios), digits), middleHalf(ratios)
}

// setAbove sets what a transfer of the bus takes above its limit, in the same rounds.
func (r *Report) setAbove() {
	if r.Workload != Bus {
		return
	}
	var above []float64
	for i, limit := range r.Details.Samples.Limit {
		above = append(above, r.Details.Samples.P50[i]-limit)
	}
	r.Details.Above = rounded(median(above), digits)
}

// compareWith sets the limit to another measurement, in the same rounds: for nodes in Python the same
// in Go, for incast the same with one worker. The cost of a request of incast has two sides, processor
// time and time on the clock; the ratio takes the side that grew more.
func (r *Report) compareWith(base *Report) {
	own, other := &r.Details.Samples, &base.Details.Samples
	var limits, ratios, over []float64
	rounds := min(len(own.P50), len(other.P50))
	if r.Workload == Incast {
		rounds = min(rounds, len(own.CPU), len(other.CPU))
	}
	for i := range rounds {
		limit, ratio := other.P50[i], own.P50[i]/other.P50[i]
		if r.Workload == Incast {
			limit, ratio = 1e6/other.Rate[i], max(other.Rate[i]/own.Rate[i], own.CPU[i]/other.CPU[i])
		}
		limits, ratios = append(limits, rounded(limit, digits)), append(ratios, rounded(ratio, digits))
		over = append(over, own.P50[i]-other.P50[i])
	}
	r.setLimit(limits, ratios, base.Details.Curve)
	if r.Workload != Incast {
		r.Details.Over = rounded(median(over), digits)
	}
}

// LimitP99 is the 99th percentile of the limit in us; 0 without a limit.
func (r *Report) LimitP99() float64 {
	if at := slices.Index(levels, 99); at < len(r.Details.Curve.Limit) {
		return r.Details.Curve.Limit[at]
	}
	return 0
}

// rounded keeps a number of decimals. It turns infinity and NaN into 0.
func rounded(v float64, digits int) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	unit := math.Pow10(digits)
	return math.Round(v*unit) / unit
}
