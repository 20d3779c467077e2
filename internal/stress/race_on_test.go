//go:build race

package stress

const (
	// slowness is what the race detector costs: counts of the short form are divided by it.
	slowness = 6
	// shadow is what the race detector may add to resident memory that is not the heap. It adds four bytes or more
	// for each byte that is touched.
	shadow = 64 << 20
	// shadowMaps is how much the race detector may add to anonymous mappings: tables that grow with the touched
	// memory. It is written in C, so each thread adds a stack, a guard and an arena of malloc.
	shadowMaps = 64
)
