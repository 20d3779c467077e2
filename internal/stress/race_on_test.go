//go:build race

package stress

// slowness is what the race detector costs: counts of the short form are divided by it.
const slowness = 4
