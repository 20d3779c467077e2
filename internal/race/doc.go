// Package race says whether the race detector is on. It makes allocations of its own, and computes many times slower.
package race
