package bench

// compareWithOneWorker compares the cost of a request with its cost when there is one worker. The
// cost has two sides, processor time and time on the clock. The ratio takes the side that grew
// more.
func (r *Report) compareWithOneWorker(one *Report) {
	var limits, ratios []float64
	for i := range min(len(r.Samples.Rate), len(one.Samples.Rate)) {
		clock := one.Samples.Rate[i] / r.Samples.Rate[i]
		processor := r.Samples.CPU[i] / one.Samples.CPU[i]
		limits = append(limits, rounded(1e6/one.Samples.Rate[i], digits))
		ratios = append(ratios, rounded(max(clock, processor), digits))
	}
	r.compareWith(limits, ratios)
	r.Curve.Limit, r.Curve.LimitCount = one.Curve.Latency, one.Curve.Count
}

// compareWithGo compares nodes in Python with nodes in Go that exchanged the same in the same
// rounds.
func (r *Report) compareWithGo(nodes *Report) {
	var limits, ratios, over []float64
	for i := range min(len(r.Samples.P50), len(nodes.Samples.P50)) {
		own, their := r.Samples.P50[i], nodes.Samples.P50[i]
		limits = append(limits, their)
		ratios = append(ratios, rounded(own/their, digits))
		over = append(over, own-their)
	}
	r.compareWith(limits, ratios)
	r.Over = rounded(median(over), digits)
	r.Curve.Limit, r.Curve.LimitCount = nodes.Curve.Latency, nodes.Curve.Count
}
