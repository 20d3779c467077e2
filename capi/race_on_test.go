//go:build cgo && race

package main

// raceEnabled: the detector makes allocations of its own.
const raceEnabled = true
