package text

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

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

// Ranges lists numbers for people, most numbers and runs of them at most: "2-3, 7, 9-12 and 40 more". It sorts them.
func Ranges(numbers []int, most int) string {
	slices.Sort(numbers)
	var parts []string
	listed := 0
	for first, last := range Runs(numbers) {
		if len(parts) >= most {
			return fmt.Sprintf("%s and %d more", strings.Join(parts, ", "), len(numbers)-listed)
		}
		listed += last - first + 1
		part := strconv.Itoa(first)
		if last > first {
			part += "-" + strconv.Itoa(last)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}
