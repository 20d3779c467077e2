//go:build !race

package mutant

// raceDetector says whether it watches.
const raceDetector = false
