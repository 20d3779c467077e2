package tcpvan

const (
	// padFrom is the payload from which padding goes before it.
	padFrom = directBound + 1
	// padUnit is a cache line.
	padUnit = 64
)

// padding is how many bytes, which mean nothing, go between a head and its payload so that the
// payload begins at a multiple of padUnit from where the message began. The kernel copies the stream
// into its pages one after the other: where head and payload together would shift payload against
// the lines that it lies in at both ends, each copy costs 5 to 10 % more. Both sides compute it.
func padding(head int, payload int64) int {
	if payload < padFrom {
		return 0
	}
	return -head & (padUnit - 1)
}

var zeros [padUnit]byte
