package bench

import "slices"

// median of values, which it sorts; 0 without any. Of an even number it is the mean of the two in the middle.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
