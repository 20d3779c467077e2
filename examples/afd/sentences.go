package afd

import (
	_ "embed" // for the sentences that ship with the example
	"strings"
)

//go:embed testdata/sentences.txt
var shipped string

// Sentences gives the sentences that ship with the example: of works in the
// public domain, in the order of testdata/sentences.txt.
func Sentences() []string { return ParseSentences(shipped) }

// ParseSentences reads one sentence a line; empty lines and those that begin with
// # are left out.
func ParseSentences(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out
}

// Share gives the items [lo, hi) of n that a worker computes: all workers'
// together are all items, in order of rank, as even as they go.
func Share(n, rank, workers int) (lo, hi int) {
	return n * rank / workers, n * (rank + 1) / workers
}
