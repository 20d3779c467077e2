package afd

import (
	_ "embed" // for the sentences that ship with the example
	"strings"
)

//go:embed testdata/sentences.txt
var shipped string

// Sentences returns the sentences that ship with the example, in the order of
// testdata/sentences.txt. They are from works in the public domain.
func Sentences() []string { return ParseSentences(shipped) }

// ParseSentences reads one sentence a line. It skips empty lines and lines that begin with #.
func ParseSentences(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out
}

// Share returns the range [lo, hi) of n items that a worker computes. The ranges of
// all workers follow each other by rank, and their lengths differ by at most one.
func Share(n, rank, workers int) (lo, hi int) {
	return n * rank / workers, n * (rank + 1) / workers
}
