//go:build race

package mx

const raceEnabled = true
