//go:build !race

package stress

const (
	slowness = 1
	shadow   = 0
)
