//go:build cgo && race

package verbs

// raceEnabled: the detector makes allocations of its own.
const raceEnabled = true
