//go:build !race

package pairtest

// Race says whether the race detector is on. With it sync.Pool drops objects at random, so tests cannot count the
// allocations of code that uses one.
const Race = false
