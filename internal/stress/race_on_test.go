//go:build race

package stress

const (
	// slowness is what the race detector costs: counts of the short form are divided by it.
	slowness = 6
	// shadow is what it may add to resident memory that is not the heap: four bytes and more for each that is touched.
	shadow = 64 << 20
	// shadowMaps is what it may add to anonymous mappings: tables that grow with what was ever touched and, as it is
	// written in C, a stack, a guard and an arena of malloc for each thread.
	shadowMaps = 64
)
