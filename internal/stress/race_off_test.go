//go:build !race

package stress

const (
	slowness   = 1
	shadow     = 0
	shadowMaps = 0
)
