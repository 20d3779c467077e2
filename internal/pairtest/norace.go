//go:build !race

package pairtest

// Race says that the race detector is on. sync.Pool then drops what it is given
// at random, so tests that count allocations cannot hold where one is used.
const Race = false
