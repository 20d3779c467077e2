package tcpvan

const (
	// padFrom is the payload from which padding goes before it.
	padFrom = directBound + 1
	// padUnit is a cache line.
	padUnit = 64
)

// padding is how many bytes, which mean nothing, go between a head and its payload. With them the
// payload begins at a multiple of padUnit from where the message began. The kernel copies the stream
// into its pages one after the other. Without padding, the payload would lie at another offset within the cache lines
// of those pages than in its memory at both ends. Each copy would then cost 5 to 10 % more. Both sides compute padding.
func padding(head int, payload int64) int {
	if payload < padFrom {
		return 0
	}
	return -head & (padUnit - 1)
}

var zeros [padUnit]byte
