package model

import "math"

// layerNorm is (x - mean) / sqrt(variance + epsilon) * gain + bias per row.
type layerNorm struct {
	gain, bias []float32
	epsilon    float64
}

// apply normalises every row of x in place.
func (n *layerNorm) apply(x []float32) {
	for width := len(n.gain); len(x) > 0; x = x[width:] {
		n.row(x[:width])
	}
}

func (n *layerNorm) row(x []float32) {
	mean := 0.0
	for _, v := range x {
		mean += float64(v)
	}
	mean /= float64(len(x))
	variance := 0.0
	for _, v := range x {
		d := float64(v) - mean
		variance += d * d
	}
	scale := 1 / math.Sqrt(variance/float64(len(x))+n.epsilon)
	for i, v := range x {
		x[i] = float32((float64(v)-mean)*scale)*n.gain[i] + n.bias[i]
	}
}
