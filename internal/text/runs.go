package text

import "iter"

// Runs yields the first and the last number of each run of consecutive numbers. The numbers
// must be sorted.
func Runs(sorted []int) iter.Seq2[int, int] {
	return func(yield func(first, last int) bool) {
		for i := 0; i < len(sorted); {
			end := i
			for end+1 < len(sorted) && sorted[end+1] == sorted[end]+1 {
				end++
			}
			if !yield(sorted[i], sorted[end]) {
				return
			}
			i = end + 1
		}
	}
}
