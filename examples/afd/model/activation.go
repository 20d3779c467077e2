package model

import "math"

// gelu replaces x by x/2 * (1 + erf(x/sqrt2)), the exact form (Hendrycks and
// Gimpel, 2016), not the tanh approximation.
func gelu(x []float32) {
	for i, v := range x {
		x[i] = float32(0.5 * float64(v) * (1 + math.Erf(float64(v)*(1/math.Sqrt2))))
	}
}

// softmax replaces a row by exp(x) / sum exp(x).
func softmax(row []float32) {
	peak := row[0]
	for _, v := range row {
		peak = max(peak, v)
	}
	sum := 0.0
	for i, v := range row {
		e := math.Exp(float64(v - peak))
		sum += e
		row[i] = float32(e)
	}
	scale := float32(1 / sum)
	for i := range row {
		row[i] *= scale
	}
}
