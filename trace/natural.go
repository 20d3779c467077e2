package trace

import (
	"cmp"
	"strings"
)

// natural compares with runs of digits as numbers: "layer 9" before "layer 10".
func natural(a, b string) int {
	for a != "" && b != "" {
		x, restA := cutRun(a)
		y, restB := cutRun(b)
		if c := compareRuns(x, y); c != 0 {
			return c
		}
		a, b = restA, restB
	}
	return cmp.Compare(len(a), len(b))
}

// compareRuns compares numbers by value, then by length, and all else by bytes.
func compareRuns(x, y string) int {
	if !digit(x[0]) || !digit(y[0]) {
		return strings.Compare(x, y)
	}
	m, n := strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
	return cmp.Or(cmp.Compare(len(m), len(n)), strings.Compare(m, n), cmp.Compare(len(x), len(y)))
}

// cutRun cuts off the longest prefix that is all digits, or has none.
func cutRun(s string) (run, rest string) {
	n := 1
	for n < len(s) && digit(s[n]) == digit(s[0]) {
		n++
	}
	return s[:n], s[n:]
}

func digit(c byte) bool { return c >= '0' && c <= '9' }
