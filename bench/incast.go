package bench

// againstOne compares what a request costs with what it costs when there is one worker. A cost has
// two sides, processor time and time on the clock; the ratio is that of the side which grew more.
func (r *Report) againstOne(one *Report) {
	var limits, ratios []float64
	for i := range min(len(r.Samples.Rate), len(one.Samples.Rate)) {
		clock := one.Samples.Rate[i] / r.Samples.Rate[i]
		processor := r.Samples.CPU[i] / one.Samples.CPU[i]
		limits = append(limits, rounded(1e6/one.Samples.Rate[i], digits))
		ratios = append(ratios, rounded(max(clock, processor), digits))
	}
	r.against(limits, ratios)
	r.Curve.Limit, r.Curve.LimitCount = one.Curve.Latency, one.Curve.Count
}
