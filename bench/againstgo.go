package bench

// againstGo compares nodes in Python with nodes in Go that have exchanged the same in the same rounds.
func (r *Report) againstGo(nodes *Report) {
	var limits, ratios, over []float64
	for i := range min(len(r.Samples.P50), len(nodes.Samples.P50)) {
		own, their := r.Samples.P50[i], nodes.Samples.P50[i]
		limits = append(limits, their)
		ratios = append(ratios, rounded(own/their, digits))
		over = append(over, own-their)
	}
	r.against(limits, ratios)
	r.Over = rounded(median(over), digits)
	r.Curve.Limit, r.Curve.LimitCount = nodes.Curve.Latency, nodes.Curve.Count
}
