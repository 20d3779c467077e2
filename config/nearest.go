package config

import (
	"iter"
	"slices"
	"strings"
)

// nearest returns the candidate with the smallest edit distance to name, or ""
// when none is near enough to be meant: at most a third of name may differ. Ties
// go to the candidate that sorts first.
func nearest(name string, candidates iter.Seq[string]) string {
	best, bestDistance := "", len(name)/3+1
	for _, c := range slices.Sorted(candidates) {
		if d := nameDistance(name, c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// nameDistance counts a wrong prefix (STEPVAN_ROLE for DMLC_ROLE) as one edit.
func nameDistance(a, b string) int {
	d := distance(a, b)
	restA, restB := unprefixed(a), unprefixed(b)
	if restA != "" && restB != "" {
		d = min(d, 1+distance(restA, restB))
	}
	return d
}

func unprefixed(name string) string {
	_, rest, _ := strings.Cut(name, "_")
	return rest
}

// distance is the number of insertions, deletions, replacements and swaps of
// neighbours that turn a into b (optimal string alignment). Long names are not
// compared: the cost grows with the product of the lengths.
func distance(a, b string) int {
	const longest = 128
	if len(a) > longest || len(b) > longest {
		return longest
	}
	var rows [3][longest + 1]int
	before, above, row := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+differ(a[i-1], b[j-1]))
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}

func differ(a, b byte) int {
	if a == b {
		return 0
	}
	return 1
}
