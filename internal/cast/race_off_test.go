//go:build !race

package cast

const raceEnabled = false
